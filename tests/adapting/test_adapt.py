"""`regard adapt` on a toy: the domain is learnt, the general text kept, and everything is in the run folder."""

import json
import shutil
import signal
import subprocess

import pytest

import regard
from regard.adapting.adapt import adapt
from regard.adapting.scoring import source_is_target_language
from regard.errors import ConfigError, DataError
from regard.run.folder import RunFolder
from regard.text.pair import Pair
from tests import commands
from tests.adapting.toy import GENERAL, domain_pairs, sentences, train_base, write_pairs
from tests.shared import make_once

WORDS = {"house": "das Haus", "cat": "die Katze", "man": "den Mann", "child": "das Kind"}
QUIET = {"tell": lambda text: None, "device": "cpu"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    trained = make_once(tmp_path_factory, "adapting-base", train_base)
    # Tests write next to it.
    return shutil.copytree(trained, tmp_path_factory.mktemp("toy") / "toy") / "base"


@pytest.fixture(scope="module")
def text(base):
    return write_pairs(base.parent / "domain.tsv", domain_pairs())


@pytest.fixture(scope="module")
def adapted(base, text):
    """The base model, adapted with replay of its own training text."""
    told = []
    done = adapt(base, text, out=base.parent / "adapted", data=base.parent, steps=160, device="cpu", tell=told.append)
    return done, told


@pytest.mark.slow
def test_the_domain_is_learnt_and_the_general_text_kept(base, adapted):
    done, _ = adapted
    bleu, chrf = done.domain.scores
    assert bleu.change > 20 and bleu.p < 0.01 and chrf.change > 10 and chrf.p < 0.01
    assert done.general is not None and done.general.num_pairs == 100
    assert all(one.change > -0.5 for one in done.general.scores)
    assert done.accepted and done.verdict.text.startswith("Accepted: better on the new text (BLEU")
    outputs = regard.load(base.parent / "adapted", device="cpu").translate(["m n o p a", "a b c d"])
    assert outputs == ["Q R S T A", "A B C D"]


@pytest.mark.slow
def test_the_numbers_are_those_of_evaluate(base, adapted):
    done, _ = adapted
    text = base.parent / "adapted.adapting" / "text"
    results = {one.name: one for one in regard.evaluate(done.run.path, data=text, device="cpu")}
    assert [one.value for one in results["new"].scores[:2]] == pytest.approx([one.after for one in done.domain.scores])
    assert results["general"].num_pairs == 100
    before = regard.evaluate(base, pairs=text / "test.jsonl", device="cpu")[0]
    assert [one.value for one in before.scores[:2]] == pytest.approx([one.before for one in done.domain.scores])


@pytest.mark.slow
def test_the_run_folder_has_the_report_and_a_card_that_names_the_base(base, adapted):
    done, _ = adapted
    assert done.run.problems() == [] and done.run.finished
    stored = json.loads((done.run.path / "adaptation.json").read_text())
    assert stored == done.as_dict() == done.run.adaptation()
    assert stored["text"] == {"train": 88, "dev": 12, "test": 20, "duplicates": 0, "leaks": 0, "unusable": 0}
    assert stored["replay"] == {"kind": "general", "origin": "the text of toy", "share": 0.5}
    page = (done.run.path / "adaptation.md").read_text()
    assert done.verdict.text in page and "| new text | 20 | BLEU |" in page
    card = done.run.card()
    assert card["corpus"]["init"]["run"] == "base" and card["adapted"] == done.verdict.text
    assert card["corpus"]["train.0"]["pairs"] == 88 and card["recipe"]["train"]["init"] == "base"


@pytest.mark.slow
def test_an_export_keeps_the_report(base, adapted, tmp_path):
    regard.export(adapted[0].run.path, tmp_path / "exported")
    assert RunFolder(tmp_path / "exported").adaptation() == adapted[0].as_dict()


@pytest.mark.slow
def test_nothing_is_tested_that_was_trained_on(base, adapted):
    text = base.parent / "adapted.adapting" / "text"
    parts = {
        path.stem: {json.loads(line)["source"] for line in path.read_text().splitlines()}
        for path in text.glob("*.jsonl")
    }
    assert parts.keys() == {"train", "dev", "test", "replay", "general-dev", "general-test"}
    for tested in ("dev", "test", "general-dev", "general-test"):
        assert not parts[tested] & (parts["train"] | parts["replay"])


@pytest.mark.slow
def test_only_the_text_is_left_of_the_work(base, adapted):
    assert sorted(path.name for path in (base.parent / "adapted.adapting").iterdir() if path.is_dir()) == ["text"]
    with pytest.raises(ConfigError, match="adapted is there already; remove it, or name another folder with --out"):
        adapt(base, base.parent / "domain.tsv", out=base.parent / "adapted", **QUIET)


@pytest.mark.slow
def test_without_general_text_the_model_replays_its_own_translations_and_says_what_is_not_measured(
    base, text, tmp_path
):
    told = []
    done = adapt(base, text, out=tmp_path / "own", steps=20, device="cpu", tell=told.append)
    assert done.general is None and "general text was not tested" in done.verdict.text
    assert any("what the model forgets is not measured" in one for one in told)
    assert done.replay["kind"] == "self"
    lines = (tmp_path / "own.adapting" / "text" / "replay.jsonl").read_text().splitlines()
    replay = [json.loads(line) for line in lines]
    assert [one["target"] for one in replay] == regard.load(base, device="cpu").translate(
        [one["source"] for one in replay]
    )


@pytest.mark.slow
def test_a_model_that_forgets_is_rejected_kept_under_another_name_and_accepted_when_asked(base, tmp_path):
    other = dict(zip(GENERAL, "MNOPQRSTAB", strict=True))  # the general words with other translations
    text = write_pairs(tmp_path / "other.tsv", sentences(other, 150, seed=6))
    general = write_pairs(tmp_path / "general.tsv", sentences(GENERAL, 150, seed=7))
    settings = {"general": [general], "replay": "none", "bound": 100, "steps": 40, "out": tmp_path / "other", **QUIET}
    done = adapt(base, text, **settings)
    assert not done.accepted and done.verdict.text.startswith("Not accepted: worse on general text (")
    assert done.run.path == tmp_path / "other-rejected" and done.run.finished and not (tmp_path / "other").exists()
    with pytest.raises(ConfigError, match="other-rejected is there already"):
        adapt(base, text, **settings)
    again = adapt(base, text, accept_loss=True, **settings)
    assert again.accepted and again.run.path == tmp_path / "other" and again.chosen == done.chosen
    assert again.verdict.text.startswith("Accepted with a loss")
    assert again.replay == {"kind": "none"} and not (tmp_path / "other.adapting" / "text" / "replay.jsonl").exists()


@pytest.mark.slow
def test_mistakes_are_refused_before_anything_is_written(base, text, tmp_path):
    few = write_pairs(tmp_path / "few.tsv", domain_pairs(30))
    with pytest.raises(DataError, match=r"few.tsv has 30 pairs; adapting needs at least 50"):
        adapt(base, few, out=tmp_path / "out", **QUIET)
    tmx = tmp_path / "memory.tmx"
    tmx.write_text(
        '<tmx version="1.4"><header srclang="fr"/><body><tu><tuv xml:lang="fr"><seg>un</seg></tuv>'
        '<tuv xml:lang="it"><seg>uno</seg></tuv></tu></body></tmx>'
    )
    with pytest.raises(DataError, match=r"gave no pair.*; the run translates en to de: name the sides .* --columns"):
        adapt("en-de", tmx, out=tmp_path / "out", **QUIET)
    with pytest.raises(DataError, match="no file"):
        adapt(base, text, out=tmp_path / "out", data=tmp_path, **QUIET)
    regard.train("runs", out=tmp_path / "tagger", overrides=["train.steps=1", "train.validate_pairs=1"])
    with pytest.raises(ConfigError, match="is a tagging run, and adapt is for translation"):
        adapt(tmp_path / "tagger", text, out=tmp_path / "out", **QUIET)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.adapting").exists()


def test_exchanged_sides_are_noticed():
    english = [f"{who} sees the {what} in the garden." for who in ("She", "My brother", "The dog") for what in WORDS]
    german = [f"{who} sieht {what} im Garten." for who in ("Sie", "Mein Bruder", "Der Hund") for what in WORDS.values()]
    translator = regard.load("en-de", device="cpu")
    assert source_is_target_language(translator, list(map(Pair, german, english)))
    assert not source_is_target_language(translator, list(map(Pair, english, german)))


def arguments(base, text, out, *more):
    return ["adapt", base, "--with", text, "--out", out, "--data", base.parent, "--device", "cpu", *more]


@pytest.mark.slow
def test_the_command_prints_the_table_or_json_and_exits_with_one_if_rejected(base, text, tmp_path):
    done = commands.regard(*arguments(base, text, tmp_path / "a", "--steps", "20"))
    assert done.returncode == 0, done.stderr
    assert "new text" in done.stdout and "general text" in done.stdout and "Accepted" in done.stdout.splitlines()[-1]
    assert f"done: {tmp_path / 'a'}" in done.stderr and "dev chrF" in done.stderr
    card = RunFolder(tmp_path / "a").card()
    assert card["command"] == f"regard adapt {base.name} --with domain.tsv --steps 20"
    other = dict(zip(GENERAL, "MNOPQRSTAB", strict=True))
    wrong = write_pairs(tmp_path / "other.tsv", sentences(other, 150, seed=6))
    more = ["--replay", "none", "--bound", "100", "--steps", "40", "--json"]
    done = commands.regard(*arguments(base, wrong, tmp_path / "b", *more))
    assert done.returncode == 1
    assert json.loads(done.stdout)["accepted"] is False
    assert f"the model is not accepted; it is kept as {tmp_path / 'b-rejected'}" in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_a_killed_adaptation_resumes_and_ends_with_the_same_scores(base, text, adapted, tmp_path):
    """SIGKILL at several moments; the same command then ends with what an uninterrupted one has."""
    out = tmp_path / "killed"
    for lines in (1, 2, 4, 7):
        process = commands.Forked(arguments(base, text, out, "--steps", "160"), stderr=subprocess.PIPE)
        for _ in range(lines):
            assert process.stderr.readline(), "it has ended"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stderr.close()
    assert not out.exists()
    done = commands.regard(*arguments(base, text, out, "--steps", "160"))
    assert done.returncode == 0, done.stderr
    ours, theirs = RunFolder(out).adaptation(), adapted[0].as_dict()
    assert ours["test"] == theirs["test"] and ours["general"] == theirs["general"]
    untimed = [{key: one[key] for key in one if key != "seconds"} for one in ours["tried"]]
    assert untimed == [{key: one[key] for key in one if key != "seconds"} for one in theirs["tried"]]
