"""Scores of given texts are those of search."""

import pytest
import torch

import regard
from regard.config import SearchOptions, TokenizerConfig
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.models import build_model
from regard.text.protected_spans import PLACEHOLDERS
from regard.text.tokenizer import EOS
from regard.text.tokenizer_pair import fit_tokenizers

SMALL = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
ENDING = {**SMALL, "output_bias": True}
TEXTS = ["Open <b>{file}</b> at 12:30, please!", "no spans here", "It costs 5 or 7", "", "please"]


def translator_of(*, kind="word", symbols=(), table=ENDING, warn=print, **options):
    pairs = [(text, text) for text in TEXTS if text]
    tokenizers = fit_tokenizers(pairs, TokenizerConfig(kind=kind, size=90, joint=True), symbols=symbols)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(table, source_size=tokenizers.source.size, target_size=tokenizers.target.size).eval()
        if model.logit_bias is not None:
            # Outputs that end.
            model.logit_bias.data[EOS] = 3
    return Translator(model, tokenizers, SearchOptions(max_extra=6, **options), warn=warn)


def assert_scores_are_those_of_search(translator, texts, *, share, penalty=0.6, **options):
    """Compare the outputs that become the same tokens when their texts are encoded: at least this share of all."""
    options = SearchOptions(beam=4, nbest=4, token_scores=True, length_penalty=penalty, **options)
    found = [
        (text, one) for text, best in zip(texts, translator.stream(texts, options=options), strict=True) for one in best
    ]
    # Search has no room for EOS in outputs of its longest length.
    found = [(text, one) for text, one in found if not text or one.tokens[-1].text == "</s>"]
    scored = translator.score([text for text, _ in found], [one.text for _, one in found], options=options)
    compared = 0
    for (_, one), given in zip(found, scored, strict=True):
        assert given.text == one.text
        if [token.text for token in one.tokens or ()] == [token.text for token in given.tokens or ()]:
            compared += 1
            assert given.score == pytest.approx(one.score, abs=2e-3)
            expected = [token.score for token in one.tokens or ()]
            assert [token.score for token in given.tokens or ()] == pytest.approx(expected, abs=5e-3)
    assert compared >= share * len(found) and len(found) > len(texts), (compared, len(found))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_texts_of_words_score_as_in_search(penalty):
    assert_scores_are_those_of_search(translator_of(), TEXTS, share=0.9, penalty=penalty)


def test_protected_spans_are_scored_as_placeholders():
    translator = translator_of(kind="bpe", symbols=PLACEHOLDERS)
    assert_scores_are_those_of_search(translator, TEXTS, share=0.2)
    [found] = translator.score(["It costs 5 or 7"], ["7 or 5 and 9"])
    tokens = [token.text for token in found.tokens]
    assert tokens.index("⟦2⟧") < tokens.index("⟦1⟧") and "⟦3⟧" not in tokens
    [plain] = translator.score(["It costs 5 or 7"], ["7 or 5 and 9"], options=SearchOptions(protect=False))
    assert not any("⟦" in token.text for token in plain.tokens)


def test_words_that_a_model_copies_have_scores_of_their_own():
    translator = translator_of(table={**SMALL, "copy": True})
    assert_scores_are_those_of_search(translator, ["costs Zyx please", "Qwertz 5"], share=0.9, max_repeats=1)
    known, unknown = translator.score(["costs Zyx please"] * 2, ["costs Zyx", "costs Xyz"])
    assert [token.text for token in known.tokens][1] == "Zyx"
    assert [token.text for token in unknown.tokens][1] == "⁇"


@pytest.mark.slow
def test_the_model_in_the_box_scores_as_it_searches():
    texts = [
        "Where is the station?",
        "Tom has 25 books, and Mary has 30.",
        "Please write to anna@example.org.",
        "<b>This</b> is the most important thing that I have learned in my life.",
        "I do not know.",
    ]
    assert_scores_are_those_of_search(regard.load("en-de", device="cpu"), texts, share=0.9)


def test_neighbours_change_no_score():
    translator = translator_of()
    targets = ["please", "5 or 7 or 5", "spans", "", "no file here, no"]
    together = translator.score(TEXTS, targets)
    alone = [translator.score([text], [target])[0] for text, target in zip(TEXTS, targets, strict=True)]
    assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=1e-4)
    assert together[3].score == 0.0 and together[3].tokens is None


def test_what_cannot_be_scored_is_refused_or_cut():
    said = []
    translator = translator_of(warn=said.append)
    with pytest.raises(DecodeError, match="given 1 source and 2 targets; give equally many"):
        translator.score(["a"], ["b", "c"])
    with pytest.raises(DecodeError, match="takes a list of texts"):
        translator.score("a", ["b"])
    with pytest.raises(DecodeError, match=r"has not been calibrated.*regard calibrate"):
        translator.score(["a"], ["b"], options=SearchOptions(confidence=True))
    translator.model.max_length = 4
    [found] = translator.score(["no"], ["no no no no no no"])
    assert len(found.tokens) == 4 and said == ["target 1 has 6 tokens; only its beginning is scored"]
    at_once = translator_of(table={**SMALL, "kind": "ctc"})
    with pytest.raises(DecodeError, match="outputs all tokens at once"):
        at_once.score(["no"], ["no"])


def test_confidence_is_the_product_of_a_words_tokens_and_their_mean_for_a_sentence():
    translator = translator_of(kind="bpe", symbols=PLACEHOLDERS)
    translator.calibrated_temperature = 2.0
    options = SearchOptions(beam=3, nbest=2, confidence=True)
    plain = [[one.text for one in best] for best in translator.stream(TEXTS, options=SearchOptions(beam=3, nbest=2))]
    found = list(translator.stream(TEXTS, options=options))
    assert [[one.text for one in best] for best in found] == plain
    for text, best in zip(TEXTS, found, strict=True):
        for one in best if text else ():
            words = one.confidence.words
            assert "".join(word.text for word in words) == "".join(one.text.split())
            assert all(0 < word.confidence <= 1 for word in words) and 0 < one.confidence.sentence < 1
    assert found[3][0].confidence is None  # of an empty line
    # A higher temperature makes likely outputs less likely, and the temperature 1 changes nothing.
    translator.calibrated_temperature = 1.0
    [[one, *_]] = translator.stream(["please"], options=options)
    mean = sum(token.score for token in one.tokens) / len(one.tokens)
    assert one.confidence.sentence == pytest.approx(torch.tensor(mean).exp().item(), rel=1e-3)
