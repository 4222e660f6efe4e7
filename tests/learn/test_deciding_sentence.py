"""A hierarchical attention network finds the one sentence that decides, not only the label."""

import pytest

import regard
from regard.text.generators import generate
from regard.text.reviews import deciding_sentence


@pytest.mark.slow
def test_the_deciding_sentence_has_the_highest_attention(tmp_path):
    regard.train("documents", out=tmp_path / "run", overrides=["train.threads=1", "train.device=cpu"])
    pairs = list(generate("reviews/test", {}))
    found = regard.load(tmp_path / "run", device="cpu").attention([pair.source for pair in pairs])
    first = [one.sentences.index(max(one.sentences)) for one in found]
    right = sum(one == deciding_sentence(pair.source) for one, pair in zip(first, pairs, strict=True))
    assert right >= 0.95 * len(pairs)
    assert sum(one.label == pair.target for one, pair in zip(found, pairs, strict=True)) >= 0.99 * len(pairs)
