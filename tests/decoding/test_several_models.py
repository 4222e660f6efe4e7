"""Loading runs that translate together: ensembles, and models of the opposite direction."""

import json

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.config import SearchOptions
from regard.decoding.ensemble import Ensemble
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.text.tokenizer_pair import train_tokenizers

PAIRS = [("a b c d", "a b c d"), ("b c", "e f")]
SMALL = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16"]
STEPS = ["train.steps=2", "train.threads=1", "train.validate_pairs=1"]


def test_models_of_other_directions_are_refused():
    refused = {
        "en-de translates from en to de; a reverse model of en-de translates from de to en": {"reverse": "en-de"},
        "de-en and en-de translate between other languages; the runs of an ensemble share them": {
            "ensemble": ["de-en"]
        },
        "ensemble takes a list of runs; put the one run into brackets": {"ensemble": "en-de"},
    }
    for message, others in refused.items():
        with pytest.raises(ConfigError) as error:
            regard.load("en-de", device="cpu", **others)
        assert str(error.value) == message


def test_a_weight_without_a_reverse_model_is_refused():
    result = CliRunner().invoke(app, ["translate", "en-de", "--reverse-weight", "0.3"])
    assert result.exit_code == 2 and "--reverse-weight needs --reverse" in result.output


def test_vocabularies_are_the_same_if_all_ids_are():
    one, again = (train_tokenizers(PAIRS, kind="word", size=50, joint=False) for _ in range(2))
    assert one.same_vocabulary(again)
    others = [
        train_tokenizers(PAIRS[:1], kind="word", size=50, joint=False),
        train_tokenizers([two[::-1] for two in PAIRS], kind="word", size=50, joint=False),
        train_tokenizers(PAIRS, kind="char", size=50, joint=False),
        one.with_tags(["<x>"]),
    ]
    assert [one.same_vocabulary(other) for other in others] == [False] * len(others)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    seeds = {"one": ["train.seed=1"], "two": ["train.seed=2"], "characters": ["tokenizer.kind=char"]}
    for name, more in {**seeds, "ctc": ["model.kind=ctc"]}.items():
        regard.train("copy", out=folder / name, overrides=[*SMALL, *STEPS, *more])
    return folder


@pytest.mark.slow
def test_runs_of_one_vocabulary_translate_together(runs, tmp_path):
    texts, options = ["a b c", "d"], SearchOptions(beam=3, nbest=3, max_extra=2)
    both = regard.load(runs / "one", ensemble=[runs / "two"], device="cpu")
    members = [regard.load(runs / name, device="cpu", engine="torch").model for name in ("one", "two")]
    assert isinstance(both.model, Ensemble)
    one = Translator(Ensemble(members), both.tokenizers, both.options)
    assert list(both.stream(texts, options=options)) == list(one.stream(texts, options=options))
    twice = regard.load(runs / "one", ensemble=[runs / "one"], device="cpu")
    alone = regard.load(runs / "one", device="cpu")
    assert twice.translate(texts) == alone.translate(texts)
    (tmp_path / "text").write_text("\n".join(texts) + "\n")
    command = [
        "translate",
        str(runs / "one"),
        str(tmp_path / "text"),
        "--ensemble",
        str(runs / "two"),
        "--device",
        "cpu",
    ]
    result = CliRunner().invoke(app, command)
    assert result.stdout.splitlines() == both.translate(texts)


@pytest.mark.slow
def test_other_vocabularies_and_models_without_steps_are_refused(runs):
    with pytest.raises(
        ConfigError, match=r"characters has another vocabulary than .*one; the runs of an ensemble share one"
    ):
        regard.load(runs / "one", ensemble=[runs / "characters"], device="cpu")
    with pytest.raises(ConfigError, match="an ensemble takes models that output one token after another"):
        regard.load(runs / "one", ensemble=[runs / "ctc"], device="cpu")
    with pytest.raises(ConfigError, match="only a model that outputs token by token can rescore"):
        regard.load(runs / "one", reverse=runs / "ctc", device="cpu")


@pytest.mark.slow
def test_commands_choose_as_the_library_does(tmp_path):
    texts = ["She bought a new car yesterday.", "Where is the station?"]
    (tmp_path / "in").write_text("\n".join(texts) + "\n")
    plain, reverse = regard.load("en-de", device="cpu"), regard.load("en-de", reverse="de-en", device="cpu")
    cases = [
        (plain, {"mbr": "chrf", "sample": True, "epsilon": 0.02}, ["--mbr", "chrf", "--sample", "--epsilon", "0.02"]),
        (plain, {"coverage_penalty": 0.5}, ["--coverage-penalty", "0.5"]),
        (reverse, {"reverse_weight": 2.0}, ["--reverse", "de-en", "--reverse-weight", "2"]),
    ]
    for translator, options, given in cases:
        command = ["translate", "en-de", str(tmp_path / "in"), "--beam", "6", "--json", "--device", "cpu", *given]
        lines = [json.loads(line) for line in CliRunner().invoke(app, command).stdout.splitlines()]
        found = list(translator.stream(texts, options=SearchOptions(beam=6, **options)))
        assert [line["text"] for line in lines] == [best[0].text for best in found]
        assert [line["score"] for line in lines] == pytest.approx([best[0].score for best in found], abs=1e-3)


@pytest.mark.slow
def test_evaluation_says_how_outputs_were_chosen(runs, tmp_path):
    for name in ("source", "reference"):
        (tmp_path / name).write_text("a b c\nd\n")
    files = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference"), "--device", "cpu"]
    chosen = ["--beam", "3", "--ensemble", str(runs / "two"), "--mbr", "bleu"]
    result = CliRunner().invoke(app, ["evaluate", str(runs / "one"), *files, *chosen])
    assert "ensemble of 2, minimum Bayes risk by bleu" in result.stdout, result.output
