"""Choosing among the hypotheses of a search: each stage alone, together with others, and what is refused."""

import pytest
import torch
from sacrebleu import sentence_bleu, sentence_chrf

from regard.config import SearchOptions
from regard.decoding.coverage import coverage_penalties
from regard.decoding.ensemble import Ensemble
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.models import build_model
from regard.text.languages import Languages
from regard.text.tokenizer_pair import train_tokenizers

TOKENIZERS = train_tokenizers([("a b c d e f g h", "a b c d e f g h")], kind="word", size=100, joint=True)
TEXTS = ["a b c", "", "h g f e d", "a", "b b b b"]


LAYERS = {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 16}


def make_model(seed=1, **table):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        shape = table or {"kind": "transformer", **LAYERS}
        model = build_model(shape, source_size=TOKENIZERS.source.size, target_size=TOKENIZERS.target.size).eval()
        if shape["kind"] == "transformer":
            model.target_embedding.data *= 3  # larger scores, so that outputs differ
    return model


MODEL, OTHER = make_model(), make_model(2)
OPTIONS = SearchOptions(beam=6, nbest=6, max_extra=1, max_length=4)
SCORER = Translator(OTHER, TOKENIZERS, SearchOptions(), warn=print)


def translator(model=MODEL, options=OPTIONS, *, rescorer=None, reverse=None, **others):
    made = Translator(model, TOKENIZERS, options, warn=print, **others)
    made.rescorer, made.reverse = rescorer, reverse
    return made


def found(options=None, model=MODEL, texts=TEXTS, **others):
    return list(translator(model, **others).stream(texts, options=options))


MBR = {
    "beams": {"mbr": "chrf"},
    "beams by BLEU": {"mbr": "bleu"},
    "samples": {"mbr": "chrf", "sample": True, "epsilon": 0.02},
    "diverse beams": {"mbr": "chrf", "beam_groups": 3},
}
STAGES = {
    **{name: (options, {}) for name, options in MBR.items()},
    "rescorer": ({}, {"rescorer": SCORER}),
    "reverse": ({"reverse_weight": 0.5}, {"reverse": SCORER}),
    "coverage": ({"coverage_penalty": 50.0}, {}),
    "all that combine": (
        {"reverse_weight": 0.5, "coverage_penalty": 0.3, "sample": True},
        {"rescorer": SCORER, "reverse": SCORER},
    ),
}


@pytest.mark.slow(unless=["samples"])
@pytest.mark.parametrize("name", STAGES)
def test_batches_and_neighbours_change_nothing(name):
    options, others = STAGES[name]
    together = found(SearchOptions(**options), **others)
    batches = found(SearchOptions(tokens=8, **options), **others)
    alone = [found(SearchOptions(**options), texts=[text], **others)[0] for text in TEXTS]
    backwards = found(SearchOptions(**options), texts=TEXTS[::-1], **others)[::-1]
    for several in zip(together, batches, alone, backwards, strict=True):
        assert len({tuple(one.text for one in some) for some in several}) == 1
        for some in several:
            assert [one.score for one in some] == pytest.approx([one.score for one in several[0]], abs=1e-4)
            assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
    assert [[one.text for one in some] for some in together] != [[one.text for one in some] for some in found()]
    # `translate` does not ask for scores, and chooses the same.
    assert translator(**others).translate(TEXTS, options=SearchOptions(**options)) == [one[0].text for one in together]


@pytest.mark.slow(unless=["samples"])
@pytest.mark.parametrize("name", MBR)
def test_the_choice_is_that_of_brute_force(name):
    options = SearchOptions(**MBR[name])
    score = {"chrf": sentence_chrf, "bleu": sentence_bleu}[options.mbr]
    without = SearchOptions(**{key: value for key, value in MBR[name].items() if key != "mbr"})
    for text, best, candidates in zip(TEXTS, found(options), found(without), strict=True):
        texts = [one.text for one in candidates]
        expected = {one: sum(score(one, [other]).score for other in texts) / len(texts) for one in texts}
        if text:
            assert best[0].score == pytest.approx(max(expected.values()), abs=1e-6)
        for one in best if text else []:
            assert one.score == pytest.approx(expected[one.text], abs=1e-6)
        # Equal samples are listed once.
        assert sorted(one.text for one in best) == sorted(set(texts))


def test_the_n_best_are_the_first_of_all():
    every = found(SearchOptions(mbr="chrf"))
    some = found(SearchOptions(mbr="chrf", nbest=2))
    assert some == [one[:2] for one in every]


def test_a_reverse_model_adds_its_score_with_the_same_length_penalty():
    options = SearchOptions(reverse_weight=0.7, length_penalty=1.0)
    before = {text: {one.text: one.score for one in some} for text, some in zip(TEXTS, found(options), strict=True)}
    for text, some in zip(TEXTS, found(options, reverse=SCORER), strict=True):
        for one in some if text else []:
            (backward,) = SCORER.score([one.text], [text], options=SearchOptions(length_penalty=1.0))
            assert one.score == pytest.approx(before[text][one.text] + 0.7 * backward.score, abs=1e-4)
    assert found(SearchOptions(reverse_weight=0.0), reverse=SCORER) == found()


def test_the_coverage_penalty_is_added_and_an_ensemble_has_the_mean_attention():
    options, ids = SearchOptions(coverage_penalty=0.4), TOKENIZERS.source.encode
    before = {text: {one.text: one.score for one in some} for text, some in zip(TEXTS, found(), strict=True)}
    for text, some in zip(TEXTS, found(options), strict=True):
        for one in some if text else []:
            (penalty,) = coverage_penalties(MODEL, [(ids(text), ids(one.text))])
            assert one.score == pytest.approx(before[text][one.text] + 0.4 * penalty, abs=1e-4)
    penalties = coverage_penalties(MODEL, [(ids("a b c d e f g h"), ids("a")), (ids("a"), ids("a b c d"))])
    assert penalties[0] < -1 and penalties[1] == 0  # two tokens cannot cover eight; five cover one
    rows = [(ids("a b c d"), ids("b a")), (ids("e f"), ids("a b a b"))]
    twice = coverage_penalties(Ensemble([MODEL, MODEL]), rows)
    assert twice == pytest.approx(coverage_penalties(MODEL, rows), abs=1e-5)
    assert coverage_penalties(Ensemble([MODEL, OTHER]), rows) != pytest.approx(twice, abs=1e-3)


def test_what_cannot_be_combined_is_refused_in_one_sentence():
    refused = [
        (lambda: found(SearchOptions(mbr="chrf"), rescorer=SCORER), "expected utility alone, without a rescorer"),
        (lambda: found(SearchOptions(mbr="bleu"), reverse=SCORER), "without a reverse model; give one or the other"),
        (lambda: SearchOptions(mbr="chrf", coverage_penalty=0.1), "without coverage_penalty; give one or the other"),
        (lambda: found(SearchOptions(coverage_penalty=0.1), model=BYTENET), "which this ByteNet has not"),
        (lambda: found(SearchOptions(coverage_penalty=0.1), model=CTC), "outputs one token after another"),
        (lambda: many(reverse=SCORER).into("de", pivot="fr"), "and a pivot makes two; give one or the other"),
        (lambda: SearchOptions(mbr="ter"), "mbr is 'ter'; it must be 'chrf' or 'bleu'"),
        (lambda: SearchOptions(coverage_penalty=-1.0), "coverage_penalty is -1.0; it must be"),
    ]
    for call, message in refused:
        with pytest.raises(DecodeError, match=message):
            call()


BYTENET = make_model(kind="bytenet", width=16, dilations=[1, 2], sets=1)
CTC = make_model(kind="ctc", **LAYERS)


def many(**others):
    return translator(**others, languages=Languages((("en", "de"), ("en", "fr"))))


def test_models_that_output_all_tokens_at_once_have_candidates_to_choose_from():
    best = found(SearchOptions(mbr="chrf"), model=CTC)
    assert [len(some) > 0 for some in best] == [True] * len(TEXTS)
    assert found(SearchOptions(reverse_weight=0.5), model=CTC, reverse=SCORER)
