"""The word aligner and the fertilities that follow from its alignments."""

import numpy as np
import torch

from regard.data.batch import FERTILITIES, collate_pairs
from regard.data.columns import Column, pair_columns
from regard.data.ragged import Layout
from regard.data.word_alignment import Aligner, spread_evenly


def sides_of(pairs):
    return pair_columns(*(Column.from_lists([list(pair[side]) for pair in pairs]) for side in (0, 1)))


def corpus(random, count=400):
    """Word w becomes 100 + w; word 7 becomes two words, word 8 nothing; the order of neighbours may change."""
    pairs = []
    for _ in range(count):
        source = random.permutation(np.arange(3, 12))[: random.integers(2, 9)].tolist()
        parts = [{7: [107, 207], 8: []}.get(word, [100 + word]) for word in source]
        if len(parts) > 2 and random.random() < 0.5:
            parts[0], parts[1] = parts[1], parts[0]
        pairs.append((source, [word for part in parts for word in part]))
    return pairs


def test_the_aligner_finds_the_fertilities_of_a_made_up_language():
    pairs = corpus(np.random.default_rng(0))
    sides = sides_of(pairs)
    found = Aligner.learn(sides).fertilities(sides)
    right = total = 0
    for number, (source, _) in enumerate(pairs):
        expected = [{7: 2, 8: 0}.get(word, 1) for word in source]
        right += sum(a == b for a, b in zip(found[number], expected, strict=True))
        total += len(source)
    assert right / total > 0.97, right / total


def test_fertilities_add_up_to_the_target_length_even_for_unseen_words():
    sides = sides_of(corpus(np.random.default_rng(1)))
    aligner = Aligner.learn(sides)
    others = sides_of([([50, 51, 52], [900, 901]), ([3], [103, 104, 105]), ([4, 5], [])])
    for one in (sides, others):
        found = aligner.fertilities(one)
        assert [sum(found[n]) for n in range(len(one))] == one["target"].lengths.tolist()


def test_a_batch_holds_the_fertilities_of_its_pairs_and_one_for_eos():
    sides = sides_of([([3, 4], [103, 104, 105]), ([7, 8, 9], [107])])
    batch = collate_pairs(Aligner.learn(sides).add_to(sides), np.array([1, 0]))
    of_each = batch.extras[FERTILITIES].split()
    assert [len(part) for part in of_each] == [4, 3]
    assert [part.sum().item() for part in of_each] == [2, 4]  # EOS among them
    assert [part[-1].item() for part in of_each] == [1, 1]


def test_evenly_spread_fertilities_add_up_to_the_target_length():
    found = spread_evenly(Layout([3, 1, 4]), Layout([7, 2, 2]))
    assert [part.sum().item() for part in found.split([3, 1, 4])] == [7, 2, 2]
    assert torch.equal(found[:3].sort().values, torch.tensor([2, 2, 3]))


def test_links_and_likely_translations_are_those_of_a_made_up_language():
    pairs = corpus(np.random.default_rng(2))
    sides = sides_of(pairs)
    aligner = Aligner.learn(sides)
    right = total = 0
    for (source, target), links in zip(pairs, aligner.links(sides), strict=True):
        assert [place for _, place in sorted(links, key=lambda link: link[1])] == list(range(len(target)))
        right += sum(target[t] % 100 == source[s] for s, t in links)
        total += len(links)
    assert right / total > 0.97, right / total
    best = aligner.translations(2)
    assert {word: best[word][0] for word in (3, 4, 5, 6, 9)} == {3: 103, 4: 104, 5: 105, 6: 106, 9: 109}
    assert set(best[7]) == {107, 207} and all(len(some) == 2 for some in best.values())


def test_a_pair_that_is_too_long_has_no_links():
    sides = sides_of([([3, 4], [103, 104]), ([3] * 9, [103] * 9)])
    assert [len(links) for links in Aligner.learn(sides, max_length=5).links(sides)] == [2, 0]
