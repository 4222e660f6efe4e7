"""`regard.compare` and `regard compare`: agreement with sacreBLEU, runs and files, JSON, and mistakes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.comparing.systems import short_names
from regard.errors import RegardError

RUNS = Path(__file__).parent.parent / "fixtures" / "run-0.1"
FEW = {"resamples": 40, "trials": 50}
NAMES = {"BLEU": "BLEU", "chrF": "chrF2", "TER": "TER"}  # ours and sacreBLEU's


def command(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words)])


def few(*words):
    return command("--resamples", 40, "--trials", 50, *words)


# Agreement with sacreBLEU


def of_sacrebleu(folder, references, *options):
    """What its command line prints."""
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", "a.txt", "b.txt", "c.txt", *options]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("references", [["ref.txt"], ["ref.txt", "ref2.txt"]])
def test_scores_intervals_and_p_values_are_those_that_sacrebleu_prints(folder, references):
    """With the defaults of both: 1,000 resamples and 10,000 trials."""
    every = ("-m", "bleu", "chrf", "ter")
    ar = json.loads(of_sacrebleu(folder, references, "--paired-ar", *every, "--format", "json"))
    # sacreBLEU 2.6 fails to write JSON for the bootstrap of other metrics than BLEU. Those are compared as a table.
    bs = json.loads(of_sacrebleu(folder, references, "--paired-bs", "--format", "json"))
    table = of_sacrebleu(folder, references, "--paired-bs", *every, "--format", "latex", "-w", "4")
    table = re.sub(r"\s+", " ", table.replace("*", ""))
    options = [word for name in references for word in ("--reference", folder / name)]
    printed = command(*(folder / name for name in ("a.txt", "b.txt", "c.txt")), *options, "--json")
    [ours] = json.loads(printed.stdout)["sets"]
    assert [one["metric"] for one in ours["metrics"]] == list(NAMES)
    for metric in ours["metrics"]:
        for number, one in enumerate(metric["systems"]):
            theirs, paired = ar[number][NAMES[metric["metric"]]], one["paired"] or {}
            assert one["score"] == theirs["score"]
            assert paired.get("p_randomization") == theirs["p_value"]
            p = f" (p = {paired['p_bootstrap']:.4f})" if paired else ""
            assert f"{one['score']:.4f} ({one['mean']:.4f} ± {one['ci']:.4f}){p}" in table
            if metric["metric"] == "BLEU":
                theirs = bs[number]["BLEU"]
                assert (one["mean"], one["ci"]) == (theirs["mean"], theirs["ci"])
                assert paired.get("p_bootstrap") == theirs["p_value"]


def test_the_intervals_are_those_of_a_single_system_in_sacrebleu(folder):
    """`corpus_score(n_bootstrap=...)`, which its option --confidence calls."""
    from sacrebleu.metrics import BLEU

    found = regard.compare(folder / "a.txt", folder / "b.txt", reference=folder / "ref.txt", resamples=40, trials=1)
    lines = {name: (folder / f"{name}.txt").read_text().splitlines() for name in ("a", "b", "ref")}
    for one, name in zip(found.sets[0].metrics[0].systems, ("a", "b"), strict=True):
        theirs = BLEU().corpus_score(lines[name], [lines["ref"]], n_bootstrap=40)
        assert (one.score, one.mean, one.ci) == (theirs.score, pytest.approx(theirs._mean, rel=1e-12), theirs._ci)


# What is printed


class Paired(msgspec.Struct, forbid_unknown_fields=True):
    change: float
    low: float
    high: float
    p_bootstrap: float
    p_randomization: float


class SystemScore(msgspec.Struct, forbid_unknown_fields=True):
    system: str
    score: float
    mean: float
    ci: float
    paired: Paired | None


class Metric(msgspec.Struct, forbid_unknown_fields=True):
    metric: str
    higher_is_better: bool
    decimals: int
    signature: str
    systems: list[SystemScore]


class Group(msgspec.Struct, forbid_unknown_fields=True):
    shortest: int
    longest: int
    num_sentences: int
    scores: dict[str, list[float]]


class Lengths(msgspec.Struct, forbid_unknown_fields=True):
    side: str
    unit: str
    groups: list[Group]


class FrequencyGroup(msgspec.Struct, forbid_unknown_fields=True):
    least: int
    most: int | None
    num_words: int
    recall: list[float]
    f1: list[float]


class Frequencies(msgspec.Struct, forbid_unknown_fields=True):
    training: str
    groups: list[FrequencyGroup]


class Sentence(msgspec.Struct, forbid_unknown_fields=True):
    line: int
    source: str | None
    references: list[str]
    before: str
    after: str
    change: float


class Changes(msgspec.Struct, forbid_unknown_fields=True):
    improved: list[Sentence]
    worsened: list[Sentence]
    equal: int


class Set(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    num_sentences: int
    num_references: int
    metrics: list[Metric]
    by_length: Lengths
    by_frequency: Frequencies | None
    changes: dict[str, Changes]


class System(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    path: str
    search: str | None


class Sampling(msgspec.Struct, forbid_unknown_fields=True):
    seed: int
    resamples: int
    trials: int


class Schema(msgspec.Struct, forbid_unknown_fields=True):
    """All fields of the JSON, which programs read: those that are missing or new are noticed here."""

    baseline: str
    systems: list[System]
    sampling: Sampling
    sets: list[Set]


def test_json_has_these_fields(folder):
    files = [folder / "a.txt", folder / "b.txt"]
    printed = few(*files, "--reference", folder / "ref.txt", "--source", folder / "source.txt", "--seed", 3, "--json")
    found = msgspec.json.decode(printed.stdout, type=Schema)
    assert found.baseline == "a.txt" and [one.name for one in found.systems] == ["a.txt", "b.txt"]
    assert found.sampling == Sampling(3, 40, 50)
    [only] = found.sets
    assert (only.name, only.num_sentences, only.num_references) == ("ref.txt", 25, 1)
    assert only.metrics[0].systems[0].paired is None and only.metrics[0].systems[1].paired is not None
    assert "bs:40|ar:50|seed:3" in only.metrics[0].signature
    assert sum(group.num_sentences for group in only.by_length.groups) == 25
    assert len(only.changes["b.txt"].improved) == 5
    assert only.by_frequency is None
    printed = few(*files, "--reference", folder / "ref.txt", "--training", folder / "ref2.txt", "--json")
    [only] = msgspec.json.decode(printed.stdout, type=Schema).sets
    words = len((folder / "ref.txt").read_text().split())
    assert only.by_frequency.training == "ref2.txt"
    assert sum(group.num_words for group in only.by_frequency.groups) == words


def test_the_text_has_all_numbers_and_the_sentences(folder):
    printed = few(folder / "a.txt", folder / "b.txt", "--reference", folder / "ref.txt", "--sentences", 2)
    assert printed.exit_code == 0
    found = regard.compare(folder / "a.txt", folder / "b.txt", reference=folder / "ref.txt", sentences=2, **FEW)
    assert printed.stdout == found.as_text() + "\n"
    [only] = found.sets
    assert "ref.txt (25 sentences, 1 reference)" in printed.stdout
    assert "TER (lower is better)" in printed.stdout
    for metric in only.metrics:
        one, other = metric.systems
        row = rf"a\.txt +{one.score:.2f} +{one.mean:.2f} ± {one.ci:.2f}\n"
        paired = other.paired
        change = re.escape(f"{paired.change:+.2f}")
        other_row = (
            rf"b\.txt +{other.score:.2f} .* {change} .* {paired.p_bootstrap:.4f} +{paired.p_randomization:.4f}\n"
        )
        assert re.search(row + other_row, printed.stdout)
    shown = re.findall(r"^  line (\d+)$", printed.stdout, flags=re.MULTILINE)
    changes = only.changes["b.txt"]
    assert shown == [str(one.line) for one in (*changes.improved, *changes.worsened)] and len(shown) == 4
    assert f"({changes.improved[0].change:+.1f})" in printed.stdout


def test_control_characters_of_an_output_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "ref").write_text("a b\nc d\n")
    (tmp_path / "a").write_text("a b\nc d\n")
    (tmp_path / "b").write_text("a \x1b[31mb\nc d\n")
    printed = few(tmp_path / "a", tmp_path / "b", "--reference", tmp_path / "ref")
    assert "\\x1b[31mb" in printed.stdout and "\x1b[31m" not in printed.stdout


def test_an_empty_translation_is_scored_and_a_compressed_file_is_read(tmp_path):
    import gzip

    (tmp_path / "ref").write_text("a b c d\ne f g h\n")
    (tmp_path / "a").write_text("a b c d\n\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"a b c d\ne f g h\n"))
    found = regard.compare(tmp_path / "a", tmp_path / "b.gz", reference=tmp_path / "ref", **FEW)
    [sentence] = found.sets[0].changes["b.gz"].improved
    assert (sentence.line, sentence.before, sentence.change) == (2, "", pytest.approx(100))


def test_exact_match_takes_the_place_of_bleu_where_no_reference_is_long_enough(tmp_path):
    (tmp_path / "ref").write_text("21000\n32\n7\n400\n")
    (tmp_path / "ref2").write_text("21,000\n32\n7\n400\n")
    (tmp_path / "a").write_text("21000\n33\n8\n400\n")
    (tmp_path / "b").write_text("21,000\n32\n8\n400\n")
    found = few(tmp_path / "a", tmp_path / "b", "--reference", tmp_path / "ref", "--reference", tmp_path / "ref2")
    reason = "no BLEU: no reference has 4 tokens, and BLEU compares as many in a row; exact match is compared instead"
    assert found.exit_code == 0 and reason in found.stderr.replace("\n", " ")
    lines = [line.split() for line in found.stdout.splitlines()]
    [head] = [place for place, words in enumerate(lines) if words[:2] == ["exact", "match"]]
    assert [lines[head + 1][:2], lines[head + 2][:2]] == [["a", "50.00"], ["b", "75.00"]]
    assert "BLEU" not in found.stdout and "exact match, chrF and TER" in found.stdout


def test_case_and_tokenizer_can_be_chosen(tmp_path):
    (tmp_path / "ref").write_text("a b c d e.\n" * 3)
    (tmp_path / "a").write_text("A B C D E.\n" * 3)
    (tmp_path / "b").write_text("a b c d e .\n" * 3)

    def scores(**options):
        found = regard.compare(tmp_path / "a", tmp_path / "b", reference=tmp_path / "ref", **FEW, **options)
        return [one.score for one in found.sets[0].metrics[0].systems]

    assert scores() == pytest.approx([pytest.approx(0, abs=20), 100])
    assert scores(lowercase=True) == pytest.approx([100, 100])
    assert scores(tokenize="none")[1] < 100
    assert few(tmp_path / "a", tmp_path / "b", "--reference", tmp_path / "ref", "--lowercase").exit_code == 0


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["x/out.txt", "y/out.txt", "z.txt"], ["x/out.txt", "y/out.txt", "z.txt"]),
        (["a", "./b/"], ["a", "b"]),
        (["r/checkpoints/step-1", "s/checkpoints/step-1"], ["r/checkpoints/step-1", "s/checkpoints/step-1"]),
        (["a/b", "b"], ["a/b", "b"]),
    ],
)
def test_systems_are_called_by_as_much_of_their_path_as_tells_them_apart(paths, names):
    assert short_names(paths) == names


# Runs


@pytest.fixture
def letters(tmp_path):
    """Files for the task of the runs: letters and their reverse."""
    lines = ["a b c d", "d c b", "e f g h i", "c a", "b b a", "h g f e", "i a c", "f d", "g h i j a", "a c e g"]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "reference").write_text("".join(f"{line[::-1]}\n" for line in lines))
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return tmp_path


def test_a_run_is_compared_with_a_file_of_its_own_translations(letters):
    run = RUNS / "transformer"
    lines = (letters / "source").read_text().splitlines()
    outputs = regard.load(run, device="cpu").translate(lines)
    (letters / "own").write_text("".join(f"{line}\n" for line in outputs))
    said = []
    found = regard.compare(
        letters / "own", run, source=letters / "source", reference=letters / "reference", tell=said.append, **FEW
    )
    assert found.sets[0].changes["transformer"].equal == 10
    assert all(one.systems[1].paired.change == 0 for one in found.sets[0].metrics)
    assert said[0] == "translating 10 sentences of reference with transformer ..."
    assert [one.search for one in found.systems] == [None, "greedy"]
    assert found.sets[0].by_length.side == "source"


def test_pairs_in_one_file_are_sources_and_references(letters):
    given = {"source": letters / "source", "reference": letters / "reference"}
    one = regard.compare(RUNS / "transformer", letters / "reference", **given, **FEW)
    other = regard.compare(RUNS / "transformer", letters / "reference", pairs=letters / "pairs.tsv", **FEW)
    assert one.sets[0].metrics == other.sets[0].metrics and other.sets[0].name == "pairs.tsv"


@pytest.mark.slow
def test_a_beam_is_used_by_the_runs(letters):
    given = ["--source", letters / "source", "--reference", letters / "reference", "--beam", 3, "--json"]
    printed = few(RUNS / "transformer", letters / "reference", *given)
    assert json.loads(printed.stdout)["systems"][0]["search"] == "beam 3, length penalty 0.6"


@pytest.mark.slow
def test_runs_are_compared_on_the_test_sets_of_the_first_recipe(tmp_path):
    transformer, rnn = RUNS / "transformer", RUNS / "rnn"
    found = regard.compare(transformer, rnn, **FEW)
    [only] = found.sets
    assert (only.name, only.num_sentences) == ("test", 1000)
    for number, run in enumerate((transformer, rnn)):
        [evaluated] = regard.evaluate(run)
        scores = {one.name: one.value for one in evaluated.scores}
        compared = {one.metric: one.systems[number].score for one in only.metrics}
        assert (compared["BLEU"], compared["chrF"]) == (scores["bleu"], scores["chrf"])


@pytest.mark.slow
def test_the_test_sets_of_a_recipe_are_found_in_the_data_folder(letters, tmp_path, monkeypatch):
    small = ["model.width=8", "model.num_layers=1", "model.num_heads=1", "model.hidden=8", "train.validate_pairs=1"]
    options = [*small, "train.steps=1", "train.warmup_steps=0", "train.threads=1", "data.test.test={pairs='pairs.tsv'}"]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (tmp_path / "pairs.tsv").rename(folder / "pairs.tsv")
    run = regard.train("reverse", out=tmp_path / "run", overrides=options, data=folder, listen=lambda event: None).run
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegardError, match=r"no file 'pairs\.tsv'"):
        regard.compare(run.path, "reference", **FEW)
    printed = few("run", "reference", "--data", folder, "--json")
    [only] = json.loads(printed.stdout)["sets"]
    # The file has the references themselves.
    assert (only["name"], only["num_sentences"]) == ("test", 10)
    assert only["metrics"][0]["systems"][1]["score"] == pytest.approx(100)
    assert only["changes"]["reference"]["improved"][0]["references"] == [
        only["changes"]["reference"]["improved"][0]["after"]
    ]


@pytest.mark.slow
def test_a_model_of_several_languages_is_asked_for_the_language_of_each_test_set(tmp_path):
    entries = [f"{{generate='copy/valid', languages=['en', '{language}']}}" for language in ("de", "fr")]
    overrides = [
        *(f"data.train=[{', '.join(entries)}]", f"data.valid={entries[1]}"),
        *(f"data.test.french={entries[1]}", f"data.test.test={entries[0]}"),
        *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.threads=1", "train.validate_pairs=1"),
        *("train.steps=1", "train.lr=0", "train.warmup_steps=0", "decode.max_extra=0"),
    ]
    run = regard.train("copy", out=tmp_path / "many", overrides=overrides, listen=lambda event: None).run.path
    shutil.copytree(run, tmp_path / "copy")
    both = regard.compare(run, tmp_path / "copy", **FEW)
    assert [one.name for one in both.sets] == ["test", "french"]
    evaluated = {one.name: one.scores[0].value for one in regard.evaluate(run)}
    for one in both.sets:
        assert [each.score for each in one.metrics[0].systems] == [evaluated[one.name]] * 2
    [french] = regard.compare(run, tmp_path / "copy", to="fr", **FEW).sets
    assert french.name == "french" and french.metrics == both.sets[1].metrics
    (tmp_path / "file").write_text("a\n")
    with pytest.raises(RegardError, match="has the translations of one test set, but the recipe has test, french"):
        regard.compare(run, tmp_path / "file")


# Mistakes


MISTAKES = {
    "one system": (["a.txt", "--reference", "ref.txt"], "a comparison needs two systems or more"),
    "a system twice": (["a.txt", "b.txt", "./a.txt", "--reference", "ref.txt"], "a.txt is named twice"),
    "a run twice": (["en-de", "en-de", "--pairs", "x.tsv"], "en-de is named twice"),
    "no references": (["a.txt", "b.txt"], "files of translations need --reference FILE"),
    "sources without references": (["a.txt", "b.txt", "--source", "source.txt"], "--source needs --reference"),
    "pairs and references": (["a.txt", "b.txt", "--pairs", "x.tsv", "--reference", "ref.txt"], "not both"),
    "a file that is not there": (
        ["a.txt", "z.txt", "--reference", "ref.txt"],
        "there is no file z.txt of translations",
    ),
    "a reference that is not there": (["a.txt", "b.txt", "--reference", "z.txt"], "there is no file z.txt"),
    "a folder that is no run": (["a.txt", ".", "--reference", "ref.txt"], "is not a run folder"),
    "too few translations": (
        ["a.txt", "short.txt", "--reference", "ref.txt"],
        "short.txt has 1 line but ref.txt has 25",
    ),
    "too few references": (
        ["a.txt", "b.txt", "--reference", "ref.txt", "--reference", "short.txt"],
        "short.txt has 1 line but ref.txt has 25",
    ),
    "too few sources": (
        ["a.txt", "b.txt", "--reference", "ref.txt", "--source", "short.txt"],
        "short.txt has 1 line but ref.txt has 25",
    ),
    "an empty file": (["a.txt", "empty.txt", "--reference", "ref.txt"], "empty.txt is empty"),
    "an empty reference": (["short.txt", "two.txt", "--reference", "blank.txt"], "line 2 of blank.txt is empty"),
    "a run without sources": (["a.txt", "en-de", "--reference", "ref.txt"], "en-de needs sources to translate"),
    "no trials": (["a.txt", "b.txt", "--reference", "ref.txt", "--trials", "0"], "trials is 0; it must be from 1"),
    "too many sentences": (["a.txt", "b.txt", "--reference", "ref.txt", "--sentences", "-1"], "sentences is -1"),
    "an unknown tokenizer": (
        ["a.txt", "b.txt", "--reference", "ref.txt", "--tokenize", "14a"],
        "tokenizers: 13a, none",
    ),
    "a page over another file": (["a.txt", "b.txt", "--reference", "ref.txt", "--html", "a.txt"], "with --html"),
    "no COMET checkpoint": (
        ["a.txt", "b.txt", "--reference", "ref.txt", "--comet", "z.ckpt"],
        "there is no file z.ckpt",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, folder, tmp_path, monkeypatch):
    words, sentence = MISTAKES[mistake]
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    for name, text in {"short.txt": "one\n", "two.txt": "a\nb\n", "empty.txt": "", "blank.txt": "a\n \n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    result = few(*words)
    # `main` prints the error and exits with 1; so does every command.
    assert isinstance(result.exception, RegardError), result.output
    assert sentence in str(result.exception) and "\n" not in str(result.exception)
    assert result.stdout == ""
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("systems", "given", "sentence"),
    [
        ([["a.txt", "b.txt"]], {}, r"a system is of type list; give each by itself: compare\('runs/a', 'b.txt'\)"),
        (["a.txt", "b.txt"], {"trials": "50"}, "trials is '50'; it must be a whole number"),
        (["a.txt", "b.txt"], {"sentences": 2.5}, "sentences is 2.5; it must be a whole number"),
        (["a.txt", "b.txt"], {"seed": True}, "seed is True; it must be a whole number"),
        (["a.txt", "b.txt"], {"lowercase": "yes"}, "lowercase 'yes'"),
    ],
)
def test_a_mistake_in_python_raises_our_error(systems, given, sentence, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(RegardError, match=sentence):
        regard.compare(*systems, reference="ref.txt", **given)


@pytest.mark.slow
def test_a_run_of_another_task_is_refused(folder, tmp_path):
    small = ["model.width=8", "model.num_layers=1", "model.num_heads=1", "model.hidden=8", "train.validate_pairs=1"]
    options = [*small, "train.steps=1", "train.warmup_steps=0", "train.threads=1"]
    run = regard.train("runs", out=tmp_path / "tagger", overrides=options, listen=lambda event: None).run.path
    with pytest.raises(RegardError, match="tagger is a tagging run, and regard compare is for translation"):
        regard.compare(folder / "a.txt", run, reference=folder / "ref.txt")


@pytest.mark.slow
def test_the_exit_status_of_a_mistake_is_one_and_help_has_examples(folder):
    program = [sys.executable, "-c", "from regard.cli import main; main()", "compare"]
    wrong = subprocess.run([*program, "a.txt", "b.txt"], cwd=folder, capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stdout == ""
    assert wrong.stderr.startswith("error: files of translations need --reference") and "Traceback" not in wrong.stderr
    shown = subprocess.run([*program, "--help"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert shown.returncode == 0
    for example in ("regard compare runs/small runs/large --data", "regard compare theirs.txt ours.txt --reference"):
        assert example in shown.stdout
