"""A run that was stopped or killed resumes as if it had not been interrupted."""

import json
import signal
import subprocess

import pytest
from safetensors.torch import load_file

import regard
from regard.errors import CheckpointError, ConfigError, DataError
from regard.run.checkpoint import write_checkpoint
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.training.events import Noted, Progress
from tests.commands import Forked

SETTINGS = [
    *(
        "train.steps=30",
        "train.checkpoint_every=10",
        "train.validate_pairs=10",
        "train.log_every=1",
        "train.tokens=128",
    ),
    *("model.width=16", "model.num_layers=1", "model.hidden=16", "model.dropout=0.1", "train.threads=1"),
    *("data.train.generate=reverse/valid", "decode.max_extra=3"),  # 500 rows, and short outputs
]
VARIANTS = {
    "plain": [],
    "ema, accumulation, averaging": ["train.ema=0.9", "train.accumulate=2", "train.average=2"],
    "best": ["train.final=best", "train.metric=loss", "train.keep=1"],
    "subword sampling": ["tokenizer.kind=bpe", "tokenizer.size=40", "tokenizer.sampling=0.3", "train.tokens=256"],
}


def weights(run):
    return load_file(run / "final" / "weights.safetensors")


def losses(run):
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [(event["step"], event["loss"]) for event in events if event["event"] == "progress"]


def stop_after(step):
    seen = []

    def listen(event):
        if isinstance(event, Progress):
            seen.append(event.step)

    return listen, lambda: bool(seen) and seen[-1] >= step


@pytest.mark.slow(unless=["plain"])
@pytest.mark.parametrize("extra", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, extra):
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=[*SETTINGS, *extra])
    for step in (13, 25):
        listen, stop = stop_after(step)
        part = regard.train("reverse", out=tmp_path / "parts", overrides=[*SETTINGS, *extra], listen=listen, stop=stop)
        assert not part.finished and losses(tmp_path / "parts")[-1][0] == step
    assert regard.train("reverse", out=tmp_path / "parts", overrides=[*SETTINGS, *extra]).finished
    uninterrupted, parts = weights(tmp_path / "uninterrupted"), weights(tmp_path / "parts")
    assert all(uninterrupted[name].equal(parts[name]) for name in uninterrupted)
    assert losses(tmp_path / "uninterrupted") == losses(tmp_path / "parts")


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=SETTINGS)
    process = Forked(["train", "reverse", *SETTINGS, "--out", "killed"], cwd=tmp_path, stderr=subprocess.PIPE)
    for line in process.stderr:
        if line.startswith("step 17/"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    assert not RunFolder(tmp_path / "killed").finished
    regard.train("reverse", out=tmp_path / "killed", overrides=SETTINGS)
    uninterrupted, killed = weights(tmp_path / "uninterrupted"), weights(tmp_path / "killed")
    assert all(uninterrupted[name].equal(killed[name]) for name in uninterrupted)
    assert losses(tmp_path / "uninterrupted") == losses(tmp_path / "killed")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tmp_path):
    listen, stop = stop_after(25)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    path = newest / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    notes = []
    listen = lambda event: notes.append(event.text) if isinstance(event, Noted) else None  # noqa: E731
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen)
    assert any(newest.name in note and "damaged" in note for note in notes)
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=SETTINGS)
    uninterrupted, mended = weights(tmp_path / "uninterrupted"), weights(tmp_path / "run")
    assert all(uninterrupted[name].equal(mended[name]) for name in uninterrupted)


def test_another_recipe_is_refused_and_the_difference_is_named(tmp_path):
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS)
    with pytest.raises(ConfigError, match=r"train\.seed: 1 -> 2"):
        regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, "train.seed=2"])


@pytest.mark.slow
def test_a_run_that_was_stopped_before_its_first_step_can_be_resumed(tmp_path):
    # The request to stop comes when the folder exists and no step has been taken.
    answers = iter([False, True, True])
    first = regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, stop=lambda: next(answers))
    assert not first.finished
    assert regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS).finished


@pytest.mark.slow
def test_checkpoints_without_a_recipe_are_refused(tmp_path):
    regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, "train.steps=10"])
    (tmp_path / "run" / "recipe.toml").unlink()
    assert not RunFolder(tmp_path / "run").finished
    with pytest.raises(CheckpointError, match=r"has checkpoints but no recipe\.toml"):
        regard.train("sort", out=tmp_path / "run", overrides=SETTINGS)


def test_a_run_whose_text_has_changed_is_refused(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nc d\td c\n")
    recipe = '[data]\ntrain = { pairs = "pairs.tsv" }\n[tokenizer]\nkind = "word"\n[model]\nkind = "transformer"\n'
    (tmp_path / "my.toml").write_text(recipe)
    listen, stop = stop_after(3)
    settings = [*(one for one in SETTINGS if "data." not in one), "model.num_heads=2"]
    regard.train(str(tmp_path / "my.toml"), out=tmp_path / "run", overrides=settings, listen=listen, stop=stop)
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nc d\td d\n")
    with pytest.raises(DataError, match="the text has changed"):
        regard.train(str(tmp_path / "my.toml"), out=tmp_path / "run", overrides=settings)


def test_a_run_that_another_process_trains_is_refused(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.locked(), pytest.raises(CheckpointError, match="another process is training"):
        regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS)
    assert regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS).finished


@pytest.mark.slow
def test_settings_of_machine_and_display_may_change_when_a_run_resumes(tmp_path):
    listen, stop = stop_after(3)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    other = [*SETTINGS, "train.log_every=7", "train.keep=9"]
    assert regard.train("reverse", out=tmp_path / "run", overrides=other).finished


@pytest.mark.slow
def test_an_accepted_change_is_written_to_the_recipe(tmp_path):
    listen, stop = stop_after(13)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    longer = [*SETTINGS, "train.steps=40", "train.lr=0.001"]
    with pytest.raises(ConfigError, match=r"train\.lr: .* -> 0\.001"):
        regard.train("reverse", out=tmp_path / "run", overrides=longer, accept=["train.steps"])
    assert RunFolder(tmp_path / "run").recipe().train.steps == 30  # a refused change changes nothing
    outcome = regard.train("reverse", out=tmp_path / "run", overrides=longer, accept=["train.steps", "train.lr"])
    assert outcome.finished
    recipe = RunFolder(tmp_path / "run").recipe()
    assert (recipe.train.steps, recipe.train.lr) == (40, 0.001)
    assert RunFolder(tmp_path / "run").problems() == []
    assert losses(tmp_path / "run")[-1][0] == 40


def test_an_interrupted_replacement_of_the_recipe_is_completed(tmp_path):
    regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, "train.steps=10"])
    run = RunFolder(tmp_path / "run")
    old = (run.path / "recipe.toml").read_bytes()
    run.change_recipe(run.recipe())
    # As if the process had been killed before the last rename, with another recipe in place.
    (run.path / "recipe.toml").rename(run.path / ".recipe.toml.new")
    (run.path / "recipe.toml").write_bytes(old.replace(b"steps = 10", b"steps = 11"))
    assert run.recipe().train.steps == 10


@pytest.mark.slow
def test_settings_that_weights_or_optimizer_depend_on_cannot_change(tmp_path):
    listen, stop = stop_after(13)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    for key, value in (
        ("model.width", "32"),
        ("train.optimizer", "muon"),
        ("train.ema", "0.5"),
        ("tokenizer.size", "9"),
    ):
        with pytest.raises(ConfigError, match=f"{key} cannot change in a run that has begun"):
            regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, f"{key}={value}"], accept=[key])
    assert regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS).finished


@pytest.mark.slow
def test_a_run_whose_batches_are_made_another_way_resumes_at_the_next_epoch(tmp_path):
    listen, stop = stop_after(13)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    newest = RunFolder(tmp_path / "run").checkpoints()[-1]
    counters = json.loads((newest / "counters.json").read_text())
    assert counters["batching"] == "Loader"
    checkpoint = RunFolder(tmp_path / "run").read_checkpoint(newest.name, training=True)
    checkpoint.counters["batching"] = "PackedLoader"
    write_checkpoint(Folder(newest.parent), newest.name, checkpoint)
    events = []
    assert regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=events.append).finished
    assert any("batches are built differently" in event.text for event in events if isinstance(event, Noted))


@pytest.mark.slow
def test_files_that_a_killed_process_left_behind_are_removed(tmp_path):
    listen, stop = stop_after(13)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    left = tmp_path / "run" / "checkpoints" / ".step-00000017.tmp"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    assert regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS).finished
    assert not left.exists()
