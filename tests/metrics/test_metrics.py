"""Metrics: perfect and worst scores, values by hand and by sacreBLEU, and the registry."""

from functools import cache
from itertools import chain

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.config import EvaluateConfig
from regard.errors import ConfigError, DataError
from regard.metrics import (
    METRICS,
    Metric,
    bleu,
    chrf,
    deciding_metric,
    describe_score,
    edit_distance,
    metrics_of,
    register_metric,
    score_all,
)

PLAIN = EvaluateConfig()
REFERENCES = ["The cat sat on the mat .", "A dog, a bone; nothing else!", "Ein Mädchen liest ein Buch."]
OUTPUTS = ["the cat sat on a mat .", "A dog, a bone; nothing more!", "Ein Mädchen liest das Buch."]
WORDS = st.lists(st.sampled_from("abc"), max_size=6)


def value(name, outputs, references, config=PLAIN):
    return METRICS.get(name, where="metric").score(outputs, references, outputs, config).value


@pytest.mark.parametrize(("name", "perfect"), [("bleu", 100), ("chrf", 100), ("exact", 100), ("token_errors", 0)])
def test_outputs_equal_to_the_references_score_perfectly(name, perfect):
    assert value(name, REFERENCES, REFERENCES) == pytest.approx(perfect)


@pytest.mark.parametrize(("name", "worst"), [("bleu", 0), ("chrf", 0), ("exact", 0), ("token_errors", 100)])
def test_empty_outputs_score_worst(name, worst):
    assert value(name, [""] * 3, REFERENCES) == pytest.approx(worst)


def test_every_metric_of_texts_gives_a_score_with_a_signature():
    scores = score_all(OUTPUTS, REFERENCES, OUTPUTS, PLAIN)
    assert [score.name for score in scores] == ["bleu", "chrf", "exact", "token_errors"]
    assert all(score.signature for score in scores)


def test_bleu_and_chrf_are_sacrebleus():
    assert value("bleu", OUTPUTS, REFERENCES) == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert value("chrf", OUTPUTS, REFERENCES) == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char", "zh"])
def test_bleu_splits_tokens_as_the_recipe_says(tokenize):
    score, signature = bleu(OUTPUTS, REFERENCES, OUTPUTS, EvaluateConfig(bleu_tokenize=tokenize))
    assert score == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], tokenize=tokenize).score
    assert f"tok:{tokenize}" in signature


def test_bleu_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples and 1 of 3 quadruples are right; both sides have 6 words.
    score = value("bleu", ["a b c d x f"], ["a b c d e f"], EvaluateConfig(bleu_tokenize="none"))
    assert score == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_bleu_is_left_out_where_it_is_always_0(tmp_path):
    """Times of day are three tokens; with a fourth there is something to compare."""
    times, config = ["12:30", "7:05"], EvaluateConfig()
    names = [score.name for score in score_all(times, times, times, config)]
    assert names == ["chrf", "exact", "token_errors"]
    longer = [*times, "12:30 Uhr"]
    assert score_all(longer, longer, longer, config)[0].name == "bleu"
    assert score_all(["十二点"], ["十二点"], [""], config)[0].name == "chrf"
    letters = EvaluateConfig(bleu_tokenize="char")
    assert score_all(["十二点半"], ["十二点半"], [""], letters)[0].name == "bleu"
    with pytest.raises(ConfigError, match=r"evaluate.metrics names 'bleu', but no reference has 4 tokens"):
        score_all(times, times, times, EvaluateConfig(metrics=("bleu",)))
    (tmp_path / "times.tsv").write_text("half past twelve\t12:30\n", encoding="utf-8")
    files = [f"data.{part}={{ pairs = '{tmp_path}/times.tsv' }}" for part in ("train", "valid")]
    with pytest.raises(
        ConfigError, match=r"train.metric is 'bleu', but in the dev set no reference has 4 tokens, .* exact"
    ):
        regard.train("dates", out=tmp_path / "run", overrides=[*files, "train.metric=bleu"])
    assert not (tmp_path / "run").exists()


def test_case_counts_unless_the_recipe_says_it_does_not():
    shouted = [reference.upper() for reference in REFERENCES]
    ignoring = EvaluateConfig(lowercase=True)
    for metric in (bleu, chrf):
        assert metric(shouted, REFERENCES, OUTPUTS, PLAIN)[0] < 50
        assert metric(shouted, REFERENCES, OUTPUTS, ignoring)[0] == pytest.approx(100)
    assert "case:lc" in bleu(shouted, REFERENCES, OUTPUTS, ignoring)[1]
    assert value("exact", shouted, REFERENCES, ignoring) == 0  # letter for letter


def test_exact_match_counts_outputs_that_are_the_reference_letter_for_letter():
    assert value("exact", ["a b", "a  b", "A b", "a b"], ["a b"] * 4) == 50


@pytest.mark.parametrize(
    ("output", "reference", "rate"),
    [
        ("a b c d", "a b c d", 0),
        ("a x c d", "a b c d", 25),  # one substitution
        ("a c d", "a b c d", 25),  # one insertion
        ("a b b c d", "a b c d", 25),  # one deletion
        ("b a", "a b", 100),  # two substitutions: moving a word is not one edit
        ("a a a", "a", 200),  # there may be more mistakes than words
        ("a   b", "a b", 0),  # spaces only separate
    ],
)
def test_token_error_rate_by_hand(output, reference, rate):
    assert value("token_errors", [output], [reference]) == rate


def test_token_errors_are_summed_before_they_are_divided():
    # 1 error in 1 word and 0 in 3: a mean of rates would be 50
    assert value("token_errors", ["x", "a b c"], ["a", "a b c"]) == 25


def test_a_different_number_of_references_is_refused():
    with pytest.raises(DataError, match=r"the number of outputs \(2\) and of references \(3\) differs"):
        score_all(["a", "b"], ["a", "b", "c"], ["a", "b"], PLAIN)


# Metrics as records


@pytest.fixture
def accuracy(monkeypatch):
    """A metric of labels, for one test."""

    def function(outputs, references, inputs, config):
        pairs = zip(chain(*outputs), chain(*references), strict=True)
        right = [output == label for output, label in pairs]
        return 100 * sum(right) / len(right), "share of labels"

    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    metric = Metric("share", function, higher_is_better=True, label="share", unit="%", compares=("kinds",))
    register_metric(metric)
    return metric


def test_outputs_are_scored_by_the_metrics_of_their_kind(accuracy):
    outputs, references = [["A", "B"], ["B", "B"]], [["A", "B"], ["B", "A"]]
    scores = score_all(outputs, references, ["", ""], PLAIN, compares="kinds")
    assert [(one.name, one.value) for one in scores] == [("exact", 50), ("share", 75)]
    assert accuracy not in metrics_of("text")


def test_a_metric_of_other_outputs_cannot_decide(accuracy):
    assert deciding_metric("share", compares="kinds") is accuracy
    with pytest.raises(ConfigError, match="which compares kinds; for text use loss, bleu, chrf, exact, token_errors"):
        deciding_metric("share")


def test_a_metric_that_is_not_known_answers_with_its_nearest_neighbour():
    with pytest.raises(ConfigError, match=r"^train\.metric is 'blue'; did you mean 'bleu'\?$"):
        deciding_metric("blue")


def test_the_loss_decides_but_is_not_computed_from_outputs():
    assert not deciding_metric("loss").higher_is_better
    assert "loss" not in [metric.name for metric in metrics_of()]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("loss", "dev loss 1.235"), ("bleu", "BLEU 1.2"), ("exact", "exact match 1.2 %"), ("ours", "ours 1.2")],
)
def test_a_score_is_described_by_its_label_and_unit(name, shown):
    assert describe_score(name, 1.2349) == shown


# Edit distance


def by_recursion(left, right):
    """The definition: drop a token from either side, or pair the two last ones."""

    @cache
    def distance(i, j):
        if not i or not j:
            return i + j
        paired = distance(i - 1, j - 1) + (left[i - 1] != right[j - 1])
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, paired)

    return distance(len(left), len(right))


@pytest.mark.parametrize(
    ("left", "right", "edits"), [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
)
def test_edit_distance_by_hand(left, right, edits):
    assert edit_distance(left, right) == edits


@given(WORDS, WORDS)
def test_edit_distance_equals_its_recursive_definition(left, right):
    assert edit_distance(left, right) == by_recursion(left, right)


@given(WORDS, WORDS, WORDS)
def test_edit_distance_obeys_the_triangle_inequality(left, middle, right):
    assert edit_distance(left, right) == edit_distance(right, left)
    assert edit_distance(left, right) <= edit_distance(left, middle) + edit_distance(middle, right)


# On demand


def test_rouge_of_a_hand_worked_case():
    """Stems of "the cat sat" and "the cats sat down" match: 3 of 3 and 3 of 4 unigrams, 2 of 2 and 2 of 3 bigrams."""
    pytest.importorskip("rouge_score")
    config = EvaluateConfig(metrics=("rouge1", "rouge2", "rougeL"))
    scores = score_all(["The cat sat"], ["the cats sat down"], [""], config)
    # F1 = 2 * matches / (tokens of both).
    assert [score.value for score in scores] == pytest.approx([100 * 6 / 7, 100 * 4 / 5, 100 * 6 / 7])
    scores = score_all(["sat cat", "a"], ["cat sat", "b"], ["", ""], config)
    # Order counts for bigrams and for the longest common subsequence, and the mean is over the outputs.
    assert [score.value for score in scores] == pytest.approx([50, 0, 25])


def test_metrics_on_demand_are_computed_where_a_recipe_names_them():
    assert not {"rouge1", "rouge2", "rougeL"} & {metric.name for metric in metrics_of("text")}
    assert [one.name for one in metrics_of("text", ("rougeL", "exact"))] == ["rougeL", "exact"]
    with pytest.raises(ConfigError, match=r"evaluate.metrics names 'span_f1', which cannot be computed from text"):
        metrics_of("text", ("span_f1",))
    with pytest.raises(ConfigError, match=r"train.metric is 'rouge1', but evaluate.metrics does not name it"):
        deciding_metric("rouge1")
