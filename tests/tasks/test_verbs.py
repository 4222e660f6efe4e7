"""Every task passes through every verb that is not for translation alone, on a tiny model and small files."""

import json
import warnings

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.errors import CheckpointError, ConfigError, DecodeError
from regard.explain.trace import Trace
from regard.run.folder import RunFolder
from regard.text.generators import generate

RECIPES = {"translation": "copy", "tagging": "runs", "classification": "majority", "pointing": "sort-numbers"}
RECIPES["question-answering"] = "rooms"
RECIPES |= {"parsing": "expressions", "captioning": "shapes", "documents": "documents", "masked-lm": "repeats"}
RECIPES |= {"binary-sequences": "ntm-copy-small", "language-modelling": "counting"}
CORPORA = {**RECIPES, "documents": "reviews", "binary-sequences": "ntm-copy"}
PICTURES = {"size": 16, "colours": 3, "kinds": 2}
CORPUS_OPTIONS = {
    "binary-sequences": {"width": 3, "max_length": 4, "count": 120},
    "captioning": PICTURES | {"count": 120},
}
TASKS = {**{task: task for task in RECIPES}, "documents": "classification"}  # documents are classified
NOT_SEARCHED = {
    "tagging",
    "classification",
    "question-answering",
    "masked-lm",
    "binary-sequences",
    "language-modelling",
}
SPLITS = {"train": 120, "valid": 10, "test": 10}
LAYERS = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=32", "model.dropout=0.1"]
MODEL = {"question-answering": ["model.width=16", "model.slots=3"]}  # other options than those of layers
TINY = [
    *("train.steps=4", "train.tokens=64", "train.checkpoint_every=2", "train.validate_every=2", "train.log_every=1"),
    *("train.threads=1", "train.device=cpu"),
]
MODEL["documents"] = ["model.width=16", "model.hidden=12", "model.attention=8"]
MODEL["binary-sequences"] = ["model.width=16", "model.locations=8", "model.location_width=4"]
INPUTS = {
    "translation": ["a b c", "", "d"],
    "tagging": ["a b c", "", "d"],
    "classification": ["a b c", "", "d"],
    "pointing": ["0.50 0.25 0.75", "", "0.5"],
    "question-answering": [
        "Mary went to the office. | John moved to the garden. | Where is Mary?",
        "",
        "Where is John?",
    ],
    "parsing": ["a + b", "", "d"],
    "documents": ["we found the soup awful | my aunt paid for the tea", "", "a"],
    "masked-lm": ["a b [MASK]", "", "d"],
    "binary-sequences": ["0101 0010 1000 . .", "", "0111 1000 ."],
    "language-modelling": ["1 2 3", "", "4"],
}
TINY_IMAGES = [pair.source for pair in generate("shapes/seen", PICTURES | {"count": 2})]
INPUTS["captioning"] = [TINY_IMAGES[0], "", TINY_IMAGES[1]]


def call(*arguments):
    """Run a command in this process. Return what it wrote to stdout."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def arguments_of(task, folder):
    data = [f'data.{split}={{pairs="{split}.tsv"}}' for split in ("train", "valid")]
    return [
        RECIPES[task],
        *data,
        'data.test={small={pairs="test.tsv"}}',
        *MODEL.get(task, LAYERS),
        *TINY,
        *([] if TASKS[task] in NOT_SEARCHED else ["decode.length_penalty=0.3", "decode.max_source=60"]),
        "--data",
        folder,
    ]


class Trained:
    """A finished run of one task, and the folder of its data."""

    def __init__(self, task, folder):
        self.task, self.folder, self.run = task, folder, folder / "run"
        lines = [
            f"{one.source}\t{one.target}\n" for one in generate(f"{CORPORA[task]}/valid", CORPUS_OPTIONS.get(task, {}))
        ]
        for split, count in SPLITS.items():
            (folder / f"{split}.tsv").write_text("".join(lines[:count]))
        call("train", *arguments_of(task, folder), "--out", self.run)


@pytest.fixture(scope="module", params=RECIPES)
def trained(request, tmp_path_factory):
    return Trained(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.slow(unless=["translation"])
def test_a_stopped_run_resumes_to_the_same_bits(trained, tmp_path):
    recipe, *overrides, _, data = arguments_of(trained.task, trained.folder)
    asked = iter(range(100))
    # `stop` is asked once before training and then before each step.
    stopped = regard.train(recipe, out=tmp_path / "run", overrides=overrides, data=data, stop=lambda: next(asked) >= 3)
    assert not stopped.finished and max(stopped.run.steps()) in (1, 2, 3)
    call("train", *arguments_of(trained.task, trained.folder), "--out", tmp_path / "run")
    resumed, expected = RunFolder(tmp_path / "run").weights()[0], RunFolder(trained.run).weights()[0]
    assert resumed.weights.keys() == expected.weights.keys()
    for name, weight in expected.weights.items():
        assert torch.equal(resumed.weights[name], weight), name


def test_evaluate_scores_the_test_set_with_the_metrics_of_the_task(trained):
    (result,) = json.loads(call("evaluate", trained.run, "--data", trained.folder, "--json"))
    assert result["name"] == "small" and result["num_pairs"] == SPLITS["test"]
    names = {score["name"] for score in result["scores"]}
    own = {
        "translation": {"bleu", "chrf", "exact", "token_errors"},
        "tagging": {"accuracy", "span_f1", "exact"},
        "classification": {"accuracy", "exact"},
        "pointing": {"accuracy", "exact"},
        "question-answering": {"accuracy", "exact"},
        "parsing": {"bracket_f1", "bracket_precision", "bracket_recall", "complete_match", "well_formed", "exact"},
        "captioning": {"bleu", "chrf", "exact", "token_errors"},
        "documents": {"accuracy", "exact"},
        "masked-lm": {"masked_accuracy", "exact"},
        "binary-sequences": {"bit_errors", "exact"},
        "language-modelling": {"perplexity", "word_perplexity"},
    }
    assert names == own[trained.task]
    assert bool(result["search"]) == (TASKS[trained.task] not in NOT_SEARCHED)


def test_report_shows_the_run(trained):
    call("report", trained.run)
    page = (trained.run / "report.html").read_text()
    # Names of the metrics that validation logged.
    expected = {"translation": "bleu", "tagging": "span_f1", "classification": "accuracy", "pointing": "accuracy"}
    expected |= {"parsing": "bracket_f1", "captioning": "bleu", "masked-lm": "masked_accuracy"}
    expected |= {"binary-sequences": "bit_errors", "language-modelling": "word_perplexity"}
    assert RECIPES[trained.task] in page and expected.get(trained.task, "accuracy") in page


def test_the_card_has_the_scores(trained):
    text = call("card", trained.run, "--data", trained.folder)
    assert text.startswith(f"# {RECIPES[trained.task]}\n") and "| small | 10 |" in text
    card = json.loads((trained.run / "card.json").read_text())
    assert card["steps"] == 4 and card["recipe"]["model"]["width"] == 16


@pytest.mark.slow(unless=["translation-svg", *(f"{task}-html" for task in RECIPES)])
@pytest.mark.parametrize("ending", ["html", "svg"])
def test_look_draws_one_input(trained, ending, tmp_path):
    file, options = tmp_path / f"look.{ending}", ["--svg"] if ending == "svg" else []
    text = call("look", trained.run, INPUTS[trained.task][0], "--out", file, *options)
    content = file.read_text()
    assert f"<{ending}" in content and f"</{ending}>" in content
    trace = regard.look(trained.run, INPUTS[trained.task][0])
    assert isinstance(trace, Trace) and text == f"{trace.target.text}\n"
    assert len(trace.probabilities) == len(trace.target.tokens) and trace.attentions
    assert ("pointer" in trace.names) == (trained.task == "pointing")


def test_load_predicts_one_line_per_input_and_nothing_for_an_empty_one(trained):
    outputs = regard.load(trained.run, device="cpu").predict(INPUTS[trained.task])
    assert len(outputs) == 3 and outputs[1] == ""
    words = [len(output.split()) for output in outputs]
    if trained.task == "tagging":
        assert words == [3, 0, 1]
    if TASKS[trained.task] in ("classification", "question-answering"):
        assert words == [1, 0, 1]
    if trained.task == "pointing":
        assert {int(position) for position in outputs[0].split()} <= {0, 1, 2}


def test_an_export_is_used_like_its_run(trained, tmp_path):
    call("export", trained.run, "--out", tmp_path / "copy")
    inputs = INPUTS[trained.task]
    assert regard.load(tmp_path / "copy").predict(inputs) == regard.load(trained.run).predict(inputs)
    assert not (tmp_path / "copy" / "checkpoints").exists()
    small = regard.export(trained.run, tmp_path / "small", weights="int8")
    assert len(regard.load(small.path).predict(inputs)) == 3


def test_the_plain_model_can_be_trained(trained):
    model = regard.load_model(trained.run, device="cpu")
    assert all(one.requires_grad for one in model.parameters())


# Verbs that are for translation


REFUSED = {
    "translate": ["translate", "RUN", "FILE"],
    "serve": ["serve", "RUN", "--port", "0"],
    "distill": ["distill", "RUN", "OUT"],
    "rescoring": ["evaluate", "RUN", "--rescorer", "RUN"],
}


@pytest.mark.slow(unless=[*(f"tagging-{verb}" for verb in REFUSED), *(f"{task}-translate" for task in RECIPES)])
@pytest.mark.parametrize("verb", REFUSED)
@pytest.mark.parametrize("trained", [task for task in RECIPES if task != "translation"], indirect=True)
def test_verbs_for_translation_refuse_other_tasks_in_one_sentence(trained, verb, tmp_path):
    (tmp_path / "file").write_text("a b\n")
    places = {"RUN": trained.run, "FILE": tmp_path / "file", "OUT": tmp_path / "out"}
    arguments = [str(places.get(one, one)) for one in REFUSED[verb]]
    if verb in ("distill", "rescoring"):
        arguments += ["--data", str(trained.folder)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigError), result.output
    message = str(result.exception)
    assert (
        f"{trained.run} is a {TASKS[trained.task]} run" in message and "translation" in message and "\n" not in message
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("trained", ["tagging"], indirect=True)
def test_a_translation_run_is_not_rescored_by_a_tagger(trained):
    with pytest.raises(ConfigError, match="is a tagging run, and rescoring is for translation"):
        regard.load("en-de", rescorer=trained.run, device="cpu")


@pytest.mark.parametrize("verb", ["evaluate", "look"])
@pytest.mark.parametrize("trained", ["tagging", "classification"], indirect=True)
def test_a_beam_is_refused_where_nothing_is_searched(trained, verb):
    text = ["a b"] if verb == "look" else []
    result = CliRunner().invoke(app, [verb, str(trained.run), *text, "--beam", "3"])
    assert isinstance(result.exception, ConfigError) and "not searched for" in str(result.exception)


def test_a_metric_of_another_task_is_refused_with_those_that_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"train.metric is 'bleu'.*for tags use loss, exact, accuracy, span_f1"):
        regard.train("runs", out=tmp_path / "run", overrides=[*TINY, "train.metric=bleu"])
    assert not (tmp_path / "run").exists()


def test_search_options_that_evaluate_does_not_give_are_those_of_the_recipe(trained):
    if TASKS[trained.task] in NOT_SEARCHED:
        pytest.skip("nothing is searched")
    (result,) = regard.evaluate(trained.run, options=regard.SearchOptions(beam=2), data=trained.folder, device="cpu")
    assert result.search == "beam 2, length penalty 0.3"


# A checkpoint of a run


@pytest.mark.slow(unless=["translation", "tagging", "captioning"])
def test_a_checkpoint_folder_is_used_in_place_of_its_run(trained, tmp_path, monkeypatch):
    folder, named = RunFolder(trained.run), trained.run / "checkpoints" / "step-00000002"
    expected, last = folder.checkpoint_at(2).weights, folder.weights()[0].weights
    name = next(name for name in expected if not torch.equal(expected[name], last[name]))

    def is_used(run):
        return torch.equal(dict(regard.load_model(run, device="cpu").named_parameters())[name], expected[name])

    assert is_used(named) and is_used(f"{named}/") and not is_used(trained.run)
    texts = INPUTS[trained.task]
    outputs = regard.load(named, device="cpu").predict(texts)
    assert regard.load(regard.export(named, tmp_path / "export").path, device="cpu").predict(texts) == outputs
    assert is_used(tmp_path / "export") and not (tmp_path / "export" / "card.md").exists()
    assert regard.evaluate(named, data=trained.folder, device="cpu")[0].num_pairs == SPLITS["test"]
    assert regard.look(named, texts[0], device="cpu").model == str(named)
    for place, path in [(named.parent.parent, "checkpoints/step-00000002"), (named.parent, "step-00000002")]:
        monkeypatch.chdir(place)
        assert is_used(path)


@pytest.mark.slow(unless=["translation", "tagging"])
def test_commands_take_a_checkpoint_folder(trained, tmp_path):
    named, out = trained.run / "checkpoints" / "step-00000002", tmp_path / "export"
    if trained.task == "translation":
        (tmp_path / "in.txt").write_text("a b c\n")
        assert call("translate", named, tmp_path / "in.txt") == f"{regard.load(named).predict(['a b c'])[0]}\n"
    assert "small (10 examples" in call("evaluate", named, "--data", trained.folder)
    call("look", named, INPUTS[trained.task][0], "--out", tmp_path / "look.html")
    call("export", named, "--out", out)
    assert RunFolder(out).problems() == []


def test_a_checkpoint_that_the_run_does_not_have_is_refused_with_those_it_has(trained):
    with pytest.raises(CheckpointError) as caught:
        regard.load(trained.run / "checkpoints" / "step-00000003", device="cpu")
    assert str(caught.value).startswith(f"{trained.run} has no checkpoint step-00000003; did you mean 'step-0000000")


# Mistakes and warnings in Python


def test_an_input_that_is_cut_is_a_python_warning_unless_a_function_takes_it(trained):
    if trained.task == "captioning":
        pytest.skip("an image of another size is refused")
    text = {"pointing": "0.5 ", "binary-sequences": "0101 "}.get(trained.task, "a ") * 1100
    with pytest.warns(regard.RegardWarning, match="line 2 has .* only the first"):
        regard.load(trained.run, device="cpu").predict(["", text])
    taken = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regard.load(trained.run, device="cpu", warn=taken.append).predict(["", text])
    assert len(taken) == 1


def test_an_input_that_is_not_a_string_is_refused_with_its_number_and_type(trained):
    predictor = regard.load(trained.run, device="cpu")
    for wrong, sentence in [
        (["", None], "text 2 is of type NoneType, not str; convert it to str, or leave it out"),
        ("a b", "predict() takes a list of texts; put the one text into brackets"),
        (None, "predict() takes a list of texts, not NoneType"),
    ]:
        with pytest.raises(DecodeError) as caught:
            predictor.predict(wrong)
        assert str(caught.value) == sentence


def test_look_refuses_what_is_not_a_string(trained):
    for wrong, kind in [(None, "NoneType"), (["a b"], "list")]:
        with pytest.raises(DecodeError) as caught:
            regard.look(trained.run, wrong, device="cpu")
        assert str(caught.value) == f"look() takes one text (str), not {kind}"
