"""What is seen is what happened."""

import numpy as np
import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.errors import Cancelled, DecodeError
from regard.explain.trace import see
from tests.explain.conftest import SENTENCE


def test_the_translation_is_that_of_translate(translator, sight):
    assert sight.target.text == translator.translate([SENTENCE])[0]
    assert sight.source.text == SENTENCE


def test_all_layers_and_heads_of_all_three_kinds_are_there(translator, sight):
    config = translator.model.config
    assert sight.names == ["encoder", "decoder", "encoder-decoder"]
    source, target = len(sight.source.pieces), len(sight.target.pieces)
    for name, shape in (
        ("encoder", (source, source)),
        ("decoder", (target, target)),
        ("encoder-decoder", (target, source)),
    ):
        layers = sight.of(name)
        depth = config.num_layers if name == "encoder" else config.decoder_layers
        assert [one.layer for one in layers] == list(range(1, depth + 1))
        for one in layers:
            assert one.weights.shape == (config.num_heads, *shape)
            np.testing.assert_allclose(one.weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not np.triu(sight.of("decoder")[0].weights, k=1).any()  # no looking ahead


def test_probabilities_are_those_of_the_search(translator, sight):
    best = translator.stream([SENTENCE], options=SearchOptions(beam=4, length_penalty=0.0))
    (found,) = best
    again = see(translator, SENTENCE, options=SearchOptions(beam=4, length_penalty=0.0), alternatives=0)
    assert again.target.text == found[0].text
    assert np.log(again.probabilities).sum() == pytest.approx(found[0].score, abs=1e-3)
    assert again.alternatives == [[] for _ in again.target.pieces]


def test_alternatives_are_less_likely_than_all_and_lead_somewhere_else(sight):
    assert len(sight.alternatives) == len(sight.target.pieces) == len(sight.probabilities)
    for own, p, found in zip(sight.target.pieces, sight.probabilities, sight.alternatives, strict=True):
        assert len(found) == 3
        assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
        assert p + sum(one.probability for one in found) <= 1 + 1e-5
        assert all(one.piece != own and one.text != sight.target.text for one in found)


def test_an_alternative_can_be_forced(translator, sight):
    tokenizer = translator.tokenizers.target
    ids = tokenizer.encode("Die")
    forced = see(translator, SENTENCE, prefix=ids, alternatives=0)
    assert forced.target.text.startswith("Die ")


def test_words_are_made_of_all_their_pieces(sight):
    for text in (sight.source, sight.target):
        assert [index for word in text.words for index in word] == list(range(len(text.pieces)))
        assert text.words[-1] == [len(text.pieces) - 1]  # EOS alone


@pytest.mark.parametrize("text", ["", "   "])
def test_nothing_cannot_be_looked_at(translator, text):
    with pytest.raises(DecodeError, match="no sentence"):
        see(translator, text)


def test_a_sentence_of_five_hundred_tokens_can_be_looked_at(translator):
    long = see(translator, " ".join(["house"] * 505), options=SearchOptions(beam=1, max_length=505), alternatives=3)
    assert len(long.source.pieces) >= 500
    assert long.of("encoder")[0].weights.shape[1] == len(long.source.pieces)


def test_alternatives_are_continued_in_chunks_and_come_to_the_same(translator, sight, monkeypatch):
    monkeypatch.setattr("regard.explain.trace.CHUNK", 300)
    assert see(translator, SENTENCE).alternatives == sight.alternatives


def test_alternatives_are_continued_only_while_source_and_output_are_few(translator, sight):
    far = see(translator, SENTENCE, options=SearchOptions(max_extra=1000))
    assert [[one.id for one in found] for found in far.alternatives] == [
        [one.id for one in found] for found in sight.alternatives
    ]
    assert not any(one.text for found in far.alternatives for one in found)


def test_a_look_can_be_stopped(translator):
    calls = iter(range(10))

    def check():
        if next(calls, None) is None:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        see(translator, SENTENCE, check=check)
