"""A disk that fills up during training: a small tmpfs, if one can be mounted."""

import subprocess

import pytest

import regard
from regard.errors import TrainingError
from regard.run.folder import RunFolder
from regard.training.events import Noted
from tests.faults.test_kills import SETTINGS


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True)
    except OSError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk, *, leave):
    """Fill the disk except for `leave` bytes."""
    import shutil

    with (disk / "ballast").open("wb") as file:
        file.write(b"\0" * (shutil.disk_usage(disk).free - leave))


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_loses_nothing(small_disk, tmp_path):
    overrides = [*SETTINGS, "train.steps=30"]
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=overrides)
    filled = []

    def listen(event):
        if type(event).__name__ == "Saved" and event.step == 10 and not filled:
            filled.append(True)
            fill(small_disk, leave=50_000)

    with pytest.raises(TrainingError, match="the disk is full; the checkpoint of step"):
        regard.train("reverse", out=small_disk / "run", overrides=overrides, listen=listen)
    run = RunFolder(small_disk / "run")
    assert 10 in run.steps()
    assert not list((run.path / "checkpoints").glob(".*")), "an incomplete checkpoint is left"
    (small_disk / "ballast").unlink()
    assert regard.train("reverse", out=run.path, overrides=overrides).finished
    final = "final/weights.safetensors"
    assert (run.path / final).read_bytes() == (tmp_path / "uninterrupted" / final).read_bytes()


@pytest.mark.slow
def test_with_disk_full_go_on_training_continues_without_checkpoints(small_disk, tmp_path):
    overrides = [*SETTINGS, "train.steps=30", "train.disk_full=go on"]
    notes = []

    def listen(event):
        if type(event).__name__ == "Saved" and event.step == 5:
            fill(small_disk, leave=20_000)
        if isinstance(event, Noted) and "was not written" in event.text:
            notes.append(event.step)
            if event.step == 20:
                (small_disk / "ballast").unlink()

    assert regard.train("reverse", out=small_disk / "run", overrides=overrides, listen=listen).finished
    assert notes == [10, 15, 20]
