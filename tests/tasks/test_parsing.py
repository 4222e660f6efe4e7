"""Parsing: a task of its own for the families of translation."""

import json

import pytest

import regard
from regard.config import EvaluateConfig
from regard.data.columns import Columns
from regard.errors import ConfigError, DataError
from regard.explain.attention import Axis
from regard.explain.figures import pyplot
from regard.explain.tree import _heights, draw_tree
from regard.metrics import TREES, score_all
from regard.models import build_model
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.parsing import ParsingTask, words_at_spaces
from regard.tasks.translation import TranslationTask
from regard.tasks.validation import make_validator
from regard.text.corpus import Pair
from regard.text.tokenizer_pair import fit_tokenizers
from regard.text.trees import repair
from regard.training.world import World


def recipe(*overrides):
    return load_recipe("expressions", overrides)


@pytest.mark.filterwarnings("ignore:model.kind=")
@pytest.mark.parametrize("kind", ["transformer", "rnn", "convs2s"])
def test_every_text_to_text_family_can_parse_where_the_recipe_says_so(kind):
    model = [f"model.kind={kind}"] if kind != "transformer" else []
    assert type(task_of(load_recipe("copy", ["task=parsing", *model]))) is ParsingTask
    assert type(task_of(load_recipe("copy", model))) is TranslationTask


def test_families_of_other_tasks_cannot_parse():
    with pytest.raises(ConfigError, match=r"task is 'parsing', but model\.kind=tagger is for tagging"):
        task_of(load_recipe("runs", ["task=parsing"]))
    with pytest.raises(ConfigError, match=r"task is 'tagging', but model\.kind=transformer is for translation"):
        task_of(load_recipe("copy", ["task=tagging"]))


def test_trees_with_words_are_learnt_with_placeholders():
    task, pairs = ParsingTask(recipe()), [Pair("a b", "(S (NP a )NP b )S"), Pair("c", "(S XX )S")]
    codec = task.fit(regard.tasks.corpus.TextPairs(pairs))
    columns = task.encode(pairs, codec)
    assert isinstance(columns, Columns)
    assert codec.target.decode(columns["target"][0]) == "(S (NP XX )NP XX )S"
    assert codec.target.size == 3 + len({"(S", ")S", "(NP", ")NP", "XX"})


def test_a_target_that_is_no_tree_over_its_words_is_refused_with_its_number():
    task, good, bad = ParsingTask(recipe()), Pair("a b", "(S XX XX )S"), Pair("a b", "(S XX )S")
    codec = fit_tokenizers([good], task.recipe.tokenizer)
    with pytest.raises(DataError, match=r"the target of example 2, '\(S XX \)S', is not a tree over 2 words"):
        task.encode([good, bad], codec)


def test_metrics_judge_form_before_repair_and_brackets_after_it():
    inputs, references = ["a b", "c"], ["(S (NP XX )NP XX )S", "(S XX )S"]
    outputs = ["(S (NP XX )NP XX", "(S XX )S"]
    scores = score_all(outputs, references, inputs, EvaluateConfig(), compares=TREES)
    assert {score.name: score.value for score in scores} == {
        **{"exact": 50.0, "bracket_f1": 100.0, "bracket_precision": 100.0, "bracket_recall": 100.0},
        **{"complete_match": 100.0, "well_formed": 50.0},
    }
    assert "95 % interval 100.0 to 100.0" in next(one.signature for one in scores if one.name == "bracket_f1")


class Gathering(World):
    """A world of one process whose messages are sent as those of several are."""

    def gather(self, message):
        return [json.loads(json.dumps(message))]


def test_outputs_of_other_processes_count_as_well_formed_only_if_they_were_generated_so():
    task, pairs = ParsingTask(recipe("model.width=16", "model.num_heads=2")), [Pair("a b c", "(S XX XX XX )S")] * 3
    codec = task.fit(regard.tasks.corpus.TextPairs(pairs))
    model = build_model(task.recipe.model, **task.sizes(codec)).eval()
    # An untrained model generates no trees.
    validation = make_validator(task, pairs, codec, model, Gathering(), lambda columns: columns, lambda event: None)(
        model
    )
    assert validation.metrics["well_formed"] == 0.0


@pytest.mark.parametrize(
    ("kind", "tokens", "expected"),
    [
        ("bpe", ["▁do", "n't", "▁", ",", "</s>"], [[0, 1], [2, 3], [4]]),
        ("word", ["don't", ",", "</s>"], [[0], [1], [2]]),
        ("char", ["n", "o", " ", ",", "</s>"], [[0, 1], [3], [4]]),
    ],
)
def test_words_of_an_input_are_separated_by_spaces_alone(kind, tokens, expected):
    assert words_at_spaces(kind, Axis("source", "", [], tokens, [])) == expected


def test_a_constituent_stands_above_all_that_is_inside_it():
    line = "(S (NP XX )NP (VP XX (NP (NP XX )NP (PP XX )PP )NP )VP )S"
    tree = repair(line.split(), 4)
    assert dict(zip([one[:3] for one in tree.constituents], _heights(tree), strict=True)) == {
        **{("S", 0, 4): 4, ("NP", 0, 1): 1, ("VP", 1, 4): 3, ("NP", 2, 4): 2, ("NP", 2, 3): 1, ("PP", 3, 4): 1}
    }


def test_the_picture_has_every_label_and_word():
    pytest.importorskip("matplotlib")
    plt = pyplot()
    figure = draw_tree(plt, repair(["(S", "(NP", "XX", ")NP", "XX", ")S"], 2), ["John", "sleeps"], None)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    plt.close(figure)
    assert sorted(texts) == ["John", "NP", "S", "sleeps"]
