"""Generated reviews: one sentence decides, and the others say nothing about the label."""

from collections import Counter

import pytest

from regard.errors import ConfigError, DataError
from regard.text.generators import generate
from regard.text.reviews import ADJECTIVES, deciding_sentence
from regard.text.segmenter import split_sentences


def test_the_deciding_sentence_has_the_label_of_its_adjective():
    for document, label in list(generate("reviews/test", {}))[:200]:
        sentences = split_sentences(document)
        assert 4 <= len(sentences) <= 10
        assert sentences[deciding_sentence(document)].split()[-1] in ADJECTIVES[label]


def test_the_other_sentences_do_not_tell_the_label():
    agree = Counter()
    for document, label in generate("reviews/test", {}):
        decides = deciding_sentence(document)
        for number, sentence in enumerate(split_sentences(document)):
            word = sentence.split()[-1]
            if number != decides and any(word in words for words in ADJECTIVES.values()):
                agree[word in ADJECTIVES[label]] += 1
    # About 4,500 fair coins: one standard deviation is 0.7 %.
    assert agree[True] / agree.total() == pytest.approx(0.5, abs=0.03)


def test_epochs_have_documents_of_their_own_and_held_out_splits_do_not():
    first, second, again = (list(generate("reviews/train", {"size": 50}, epoch=epoch)) for epoch in (0, 1, 0))
    assert first == again and not set(first) & set(second)
    assert list(generate("reviews/valid", {}, epoch=1)) == list(generate("reviews/valid", {}))


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="shortest is 5, more than longest"):
        generate("reviews/train", {"shortest": 5, "longest": 3})
    with pytest.raises(DataError, match="not one of the generated reviews: 0 sentences decide"):
        deciding_sentence("the cook slept | it rained")
