"""Limits on what a request may demand, and glossaries with more than that."""

from itertools import product

import pytest
import torch

from regard.config import SearchOptions
from regard.decoding.requests import MOST_CHARS, MOST_FORMS, MOST_PHRASES, MOST_TOKENS, Request
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.models import build_model
from regard.text.glossary import Term, make_glossary
from regard.text.tokenizer_pair import train_tokenizers

WORDS = ["".join(three) for three in product("abcdefgh", repeat=3)][:200]


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def translator(warnings):
    # One token per word.
    text = " ".join([*WORDS, *map(str.capitalize, WORDS)])
    tokenizers = train_tokenizers([(text, text)], kind="word", size=500, joint=True)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        table = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
        model = build_model(table, source_size=tokenizers.source.size, target_size=tokenizers.target.size).eval()
    return Translator(model, tokenizers, SearchOptions(max_extra=5, beam=4), warn=warnings.append)


def test_parts_to_keep_count_as_phrases():
    kept = WORDS[:MOST_PHRASES]
    assert len(Request(" ".join(kept), keep=kept).keep) == MOST_PHRASES
    with pytest.raises(DecodeError, match=f"at most {MOST_PHRASES} phrases and parts to keep"):
        Request(" ".join(kept), phrases=["ab"], keep=kept)


def test_the_characters_of_all_phrases_are_limited_before_they_are_tokenized():
    with pytest.raises(DecodeError, match="more than 8,192 characters in all; leave out some of them"):
        Request("ab", phrases=["a" * MOST_CHARS] * 9)


def test_the_tokens_of_all_forms_are_limited(translator):
    half = " ".join(["aaa"] * (MOST_TOKENS // 2))
    translator.refuse(Request("ab", phrases=[[half, half]]))
    for phrases in ([half, half, "bbb"], [[half, half, "bbb"]]):
        with pytest.raises(DecodeError, match=f"have {MOST_TOKENS + 1} tokens in all their forms, .* leave out some"):
            translator.refuse(Request("ab", phrases=phrases))


def test_the_longest_output_grows_with_what_is_demanded(translator):
    options = translator.options
    assert translator.output_limit(Request("aaa"), 3, options) == 3 + 5
    # The shortest form of each phrase.
    assert (
        translator.output_limit(Request("aaa", phrases=["aab aac aad", ["aae aaf", "aaa aab aac"]]), 3, options)
        == 8 + 3 + 2
    )
    assert translator.output_limit(Request("aaa", prefix="aab " * 20), 3, options) == 20 + 1


def test_a_term_with_many_forms_does_not_stop_a_file_and_is_warned_of_once(translator, warnings):
    many, fewer = "|".join(WORDS[:12]), "|".join(WORDS[:11])  # twice as many with capital letters
    glossary = make_glossary([("abc", many), ("abd", fewer), ("abe", "aaa|aab")])
    chosen = translator.with_glossary(glossary)
    assert warnings == [
        "the glossary has 24 forms for 'abc', with capital letters, and 1 other term; only the first 20 are used"
    ]
    assert [best.lost for [best] in chosen.stream(["abc", "abd", "abe"])] == [(), (), ()]
    assert len(warnings) == 1
    few = translator.with_glossary(make_glossary([("abc", "|".join(WORDS[: MOST_FORMS // 2]))]))
    assert few.glossary is not None and len(warnings) == 1


@pytest.mark.parametrize(
    ("translated", "most"),
    [
        (str.capitalize, MOST_PHRASES),  # one form of one token
        (lambda source: " ".join([source] * 9), MOST_TOKENS // 18),  # two forms of nine tokens
    ],
)
def test_terms_beyond_the_limits_are_reported_where_they_are_missing(translator, translated, most):
    sources = WORDS[: MOST_PHRASES + 10]
    glossary = make_glossary([(source, translated(source)) for source in sources])
    [[best]] = translator.with_glossary(glossary).stream([" ".join(sources)])
    targets = list(map(translated, sources))
    assert all(one.lower() in best.text.lower() for one in targets[:most])
    assert best.lost and set(best.lost) <= set(targets[most:])
    assert not any(one in best.text for one in best.lost)


def test_a_term_that_the_model_cannot_output_is_reported_as_missing(translator):
    chosen = translator.with_glossary(make_glossary([("abc", "xyz"), ("abd", "xyz|aaa")]))
    [[first], [second]] = chosen.stream(["abc", "abd"])
    assert first.lost == ("xyz",) and second.lost == () and "aaa" in second.text.lower()


def test_a_term_that_comes_twice_is_one_demand():
    glossary = make_glossary([("house", "Haus")])
    assert glossary.phrases("a house is a house") == [("Haus",)]
    assert Term("car", ("neuer Wagen", "PKW")).forms == ("neuer Wagen", "PKW", "Neuer Wagen")
