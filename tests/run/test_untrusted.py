"""Untrusted run folders: nothing outside of them is read or written, and odd content is at most a CheckpointError."""

import json
import os
import resource
import shutil
from contextlib import contextmanager, suppress

import pytest
import torch

import regard
from regard import api, evaluating
from regard.cli.doctor import check_run
from regard.distilling import distill
from regard.errors import CheckpointError, ConfigError, DataError, Diverged, RegardError, TrainingError
from regard.explain.report import as_report, write_report
from regard.recipe_files import load_recipe
from regard.run.checkpoint import Checkpoint, write_checkpoint
from regard.run.folder import RunFolder
from regard.run.log import log_line
from regard.storage.folder import Folder
from regard.storage.manifest import replace_files, staged
from regard.toml import dump_toml, to_table
from regard.training.events import Noted
from regard.training.training_state import TrainingState
from tests.commands import regard as run_command

SETTINGS = [
    *("train.steps=4", "train.checkpoint_every=2", "train.log_every=1", "train.validate_pairs=2", "train.tokens=256"),
    *("model.width=16", "model.hidden=16", "model.num_layers=1", "model.num_heads=2", "train.device=cpu"),
]
SECRET = "the contents of a secret file"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    run = tmp_path_factory.mktemp("strangers") / "run"
    regard.train("reverse", out=run, overrides=SETTINGS)
    api.card(run, evaluated=False)
    return run


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


def with_recipe(run, *overrides):
    """Replace the recipe of a run, with a valid manifest as an attacker would."""
    table = {"name": "reverse", **to_table(api.resolve(load_recipe("reverse", [*SETTINGS, *overrides])))}
    reseal(run, **{"recipe.toml": dump_toml(table)})


def reseal(run, **contents):
    replace_files(Folder(run), {name: text.encode() for name, text in contents.items()})


@contextmanager
def little_memory(mebibytes=600):
    """A context in which the process can allocate only this much memory."""
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + mebibytes * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# Links


@pytest.mark.parametrize("name", [".card.md.tmp", ".card.json.tmp", ".manifest.json.tmp", "card.md", "card.json"])
def test_writing_a_card_does_not_follow_links(run, secret, name):
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    api.card(run, evaluated=False)
    assert secret.read_text() == SECRET
    assert (run / "card.md").read_text().startswith("# reverse") and not (run / "card.md").is_symlink()


def test_writing_a_report_does_not_follow_links(run, secret):
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(secret)
    done = run_command("report", run)
    assert done.returncode == 0, done.stderr
    assert secret.read_text() == SECRET and "<html" in (run / "report.html").read_text()


@pytest.mark.slow
def test_training_does_not_follow_links(original, tmp_path, secret):
    for name in (".lock", "log.jsonl", "checkpoints", "final", "tokenizer"):
        run = tmp_path / f"linked {name}"
        shutil.copytree(original, run)
        shutil.rmtree(run / "final")
        shutil.rmtree(run / "checkpoints" / "step-00000004")
        target = tmp_path / f"target of {name}"
        if (run / name).is_dir() or name == "final":
            target.mkdir()
            (target / ".step-00000009.tmp").mkdir()
            shutil.rmtree(run / name, ignore_errors=True)
        else:
            target.write_text(SECRET)
            (run / name).unlink()
        (run / name).symlink_to(target)
        before = sorted(target.rglob("*")), target.is_dir() or target.read_text()
        with suppress(CheckpointError):
            regard.train("reverse", out=run, overrides=SETTINGS)
        assert (sorted(target.rglob("*")), target.is_dir() or target.read_text()) == before, name


@pytest.mark.parametrize(
    "name", ["checkpoints", "checkpoints/step-00000002", "checkpoints/step-00000002/weights.safetensors"]
)
def test_a_named_checkpoint_is_not_read_through_a_link(run, tmp_path, name):
    named = run / "checkpoints" / "step-00000002"
    regard.load(named, device="cpu")
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError):
        regard.load(named, device="cpu")


def test_a_named_checkpoint_that_is_damaged_is_refused_and_no_other_is_used(run):
    weights = run / "checkpoints" / "step-00000002" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged"):
        regard.load(weights.parent, device="cpu")


@pytest.mark.parametrize("name", ["card.md", "card.json"])
def test_the_target_of_a_linked_card_is_never_shown(run, secret, tmp_path, name):
    from regard.serve.models import load_all

    (run / name).unlink()
    (run / name).symlink_to(secret)
    assert SECRET not in as_report([RunFolder(run)])
    api.export(run, tmp_path / "given")
    assert not (tmp_path / "given" / name).exists()
    served = load_all([run], int8=False)
    assert SECRET not in json.dumps([one.describe() for one in served.values()])


def test_links_to_weights_and_folders_are_refused(run, tmp_path):
    shutil.copytree(run / "final", tmp_path / "elsewhere")
    (run / "final" / "weights.safetensors").unlink()
    (run / "final" / "weights.safetensors").symlink_to(tmp_path / "elsewhere" / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is a symbolic link"):
        regard.load(run, device="cpu")
    shutil.rmtree(run / "final")
    (run / "final").symlink_to(tmp_path / "elsewhere")
    assert not RunFolder(run).finished


def test_manifests_cover_cards_and_reports(run):
    assert RunFolder(run).problems() == []
    for name in ("card.md", "card.json", "report.html"):
        content = (run / name).read_text()
        (run / name).write_text(content + " ")
        assert RunFolder(run).problems() == [f"{run / name} is damaged: it is not what was written"]
        assert RunFolder(run).read_extra(name) is None
        (run / name).write_text(content)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "", "x" * 201])
def test_a_name_that_is_not_one_printable_line_is_refused(name):
    with pytest.raises(ConfigError, match="one line of at most 200 printable characters"):
        load_recipe("copy", [f"name={json.dumps(name)}"])


# Odd content


def use(run, tmp_path):
    """Call everything that must be safe on an untrusted folder. Only CheckpointError may be raised."""
    folder = RunFolder(run)
    for act in (
        lambda: regard.load(run, device="cpu").translate(["a b"]),
        lambda: as_report([folder]),
        lambda: write_report(folder),
        lambda: api.card(run, evaluated=False),
        lambda: api.export(run, tmp_path / f"export-{len(list(tmp_path.iterdir()))}"),
        lambda: check_run(run),
        folder.problems,
    ):
        try:
            act()
        except CheckpointError:
            pass
        except RegardError as error:
            raise AssertionError(f"{type(error).__name__} instead of CheckpointError: {error}") from error


DEEP = "[" * 50_000
ODD_VALUES = ["[]", "{}", "null", "3", '"text"', DEEP, "1" * 5000, '{"a": 1e999}', "", "\x00"]


@pytest.mark.parametrize("name", ["corpus.json", "card.json", "recipe.toml"])
@pytest.mark.parametrize("content", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_odd_content_of_a_sealed_file_is_at_most_a_checkpoint_error(run, tmp_path, name, content):
    reseal(run, **{name: content})
    use(run, tmp_path)


@pytest.mark.parametrize("content", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_odd_counters_are_at_most_a_checkpoint_error(run, tmp_path, content):
    weights = (run / "final" / "weights.safetensors").read_bytes()
    with staged(Folder(run), "final") as folder:
        folder.save_bytes("weights.safetensors", weights)
        folder.save_text("counters.json", content)
    use(run, tmp_path)


ODD_EVENTS = [
    *({"event": kind} for kind in ("started", "progress", "validated", "noted", "saved", "else")),
    *({"event": kind, "step": -1} for kind in ("progress", "noted")),
    {"event": ["progress"], "step": 1},
    {"step": 1},
    {"event": "progress", "step": 10**30, "seconds": "long"},
    {"event": "validated", "step": 1, "best": True, "examples": [3]},
    {"event": "validated", "step": 1, "best": True, "examples": [], "bleu": {"deep": []}, "histograms": 3},
    {"event": "started", "step": 1, "machine": []},
]


@pytest.mark.parametrize("event", ODD_EVENTS, ids=range(len(ODD_EVENTS)))
def test_an_odd_event_with_a_correct_checksum_is_at_most_damage(run, tmp_path, event):
    with (run / "log.jsonl").open("a") as file:
        file.write(log_line(event))
    use(run, tmp_path)


@pytest.mark.parametrize("body", [DEEP, '{"event": ' * 9999, "1" * 5000])
def test_a_line_that_cannot_be_parsed_is_reported_as_damage(run, tmp_path, body):
    import zlib

    crc = zlib.crc32((body + "}").encode())
    with (run / "log.jsonl").open("a") as file:
        file.write(f'{body}, "crc": "{crc:08x}"}}\n')
    assert len(RunFolder(run).log_problems()) == 1
    use(run, tmp_path)


@pytest.mark.slow(unless=["model.width=1000"])
@pytest.mark.parametrize(
    "override",
    [
        *("model.num_layers=100000000", "model.width=400000", "model.width=32768", "model.hidden=200000"),
        *("model.num_layers=300", "model.max_positions=1048576", "decode.max_extra=100000000000", "decode.tokens=-1"),
        *("decode.max_source=100000000000", "train.lr=inf", "train.eps=nan", "tokenizer.size=10000000000"),
    ],
)
def test_huge_sizes_in_a_recipe_do_not_allocate_memory(run, tmp_path, override):
    text = (run / "recipe.toml").read_text()
    key, _, value = override.partition("=")
    lines = [line for line in text.splitlines() if not line.startswith(key.partition(".")[2] + " ")]
    lines.insert(lines.index(f"[{key.partition('.')[0]}]") + 1, f"{key.partition('.')[2]} = {value}")
    reseal(run, **{"recipe.toml": "\n".join(lines)})
    with little_memory():
        use(run, tmp_path)


def test_weights_far_larger_than_the_model_are_refused_before_they_are_read(run):
    with (run / "final" / "weights.safetensors").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors does not fit this model: it is larger than"):
        regard.load(run, device="cpu")


# Values that are not finite


def test_weights_that_are_not_finite_are_neither_written_nor_loaded(run):
    found = RunFolder(run).weights()[0]
    name = next(iter(found.weights))
    bad = {**found.weights, name: torch.full_like(found.weights[name], float("nan"))}
    with pytest.raises(Diverged, match=r"was not written: .* not finite, so training has diverged"):
        write_checkpoint(Folder(run), "final", Checkpoint(bad))
    assert RunFolder(run).finished, "the earlier weights were removed"
    from regard.run.torch_tensors import write_tensors

    with staged(Folder(run), "final") as folder:
        write_tensors(folder, "weights.safetensors", bad)
        folder.save_json("counters.json", {"step": 4})
    with pytest.raises(CheckpointError, match=r"cannot be used: .* not finite"):
        regard.load(run, device="cpu")


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e400"])
def test_a_rate_that_is_not_finite_is_refused(value):
    with pytest.raises(ConfigError, match=r"lr is .*; numbers must be finite"):
        load_recipe("reverse", [f"train.lr={value}"])


def test_a_run_whose_weights_are_not_finite_ends_with_an_error(tmp_path, monkeypatch):
    weights = TrainingState.weights
    monkeypatch.setattr(
        TrainingState, "weights", lambda self: {name: one * torch.inf for name, one in weights(self).items()}
    )
    with pytest.raises(Diverged, match="not finite, so training has diverged"):
        regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS)
    assert not RunFolder(tmp_path / "run").finished and not RunFolder(tmp_path / "run").steps()


def test_a_run_that_skipped_most_of_its_steps_does_not_finish(tmp_path):
    huge = ["train.optimizer=adamw", "train.lr=1e15", "train.weight_decay=1e6", "train.schedule=inverse-sqrt"]
    with pytest.raises(TrainingError, match=r"of 6 steps had a gradient that is not finite"):
        regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, *huge, "train.steps=6"])
    assert not RunFolder(tmp_path / "run").finished


def test_empty_dev_outputs_are_reported(tmp_path, monkeypatch):
    from regard.decoding.translator import Translator

    monkeypatch.setattr(Translator, "translate", lambda self, texts, *, options=None: ["" for _ in texts])
    heard = []
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=heard.append)
    assert any(isinstance(event, Noted) and "all dev outputs are empty (2)" in event.text for event in heard)


# Files of this machine


def name_test_set(run, path):
    reseal(run, **{"recipe.toml": (run / "recipe.toml").read_text() + f'\n[data.test.theirs]\npairs = "{path}"\n'})


def test_the_recipe_of_a_run_reads_only_files_that_the_user_named(run, tmp_path, monkeypatch):
    private = tmp_path / "private" / "pairs.tsv"
    private.parent.mkdir()
    private.write_text("a b\tb a\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("REGARD_DATA", raising=False)
    for path in (private, "../private/pairs.tsv", "/dev/stdin", "-"):
        name_test_set(run, path)
        for read in (evaluating.evaluate, api.card):
            with pytest.raises(DataError, match=r"outside of the folders that you named|reads standard input"):
                read(run)
        shutil.copy(run.parent / "run" / "recipe.toml", tmp_path / "kept")
        reseal(run, **{"recipe.toml": (tmp_path / "kept").read_text().partition("\n[data.test.theirs]")[0] + "\n"})
    name_test_set(run, private)
    assert any(one.name == "theirs" for one in evaluating.evaluate(run, data=private.parent))


def test_an_untrusted_teacher_reads_only_files_that_the_user_named(run, tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    text = (run / "recipe.toml").read_text()
    train = next(line for line in text.splitlines() if line.startswith("generate"))
    reseal(run, **{"recipe.toml": text.replace(train, 'pairs = "/etc/passwd"', 1)})
    with pytest.raises(DataError, match="outside of the folders that you named"):
        distill(run, tmp_path / "distilled")
