"""Damage to any file of a run folder (a flipped bit, a truncation) is detected, and the error names the file."""

import shutil

import pytest

import regard
from regard.errors import CheckpointError
from regard.run.folder import RunFolder
from regard.training.events import Noted
from tests.faults.test_kills import SETTINGS

UNCHECKED = {".lock", "report.html"}  # empty, or generated from the log: their content is never read


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    run = tmp_path_factory.mktemp("damage") / "run"
    regard.train("reverse", out=run, overrides=[*SETTINGS, "train.steps=10"])
    return run


def files(run):
    return sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file() and path.name not in UNCHECKED)


def damages(content):
    """Yield the content with one bit flipped (first, middle, last byte), and truncated by half and by one byte."""
    for place in {0, len(content) // 2, len(content) - 1}:
        yield content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
    yield content[: len(content) // 2]
    yield content[:-1]


def test_an_intact_run_has_no_problems(original):
    assert RunFolder(original).problems() == []


def test_damage_to_every_file_is_detected_and_named(original, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(original, run)
    names = files(run)
    assert {path.name for path in names} >= {
        *("recipe.toml", "corpus.json", "log.jsonl", "manifest.json", "counters.json"),
        *("weights.safetensors", "training.safetensors", "tokenizer.json"),
    }
    for name in names:
        content = (run / name).read_bytes()
        for damaged in damages(content):
            (run / name).write_bytes(damaged)
            problems = RunFolder(run).problems()
            assert problems and str(run / name) in problems[0], (name, problems)
        (run / name).write_bytes(content)
    assert RunFolder(run).problems() == []


@pytest.mark.parametrize(
    "name", ["recipe.toml", "corpus.json", "tokenizer/tokenizer.json", "final/weights.safetensors"]
)
def test_loading_refuses_a_damaged_essential_file_by_name(original, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(original, run)
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name.rsplit("/", maxsplit=1)[-1].replace(".", r"\.")):
        regard.load(run, device="cpu")


def test_training_reports_a_damaged_checkpoint_and_resumes_from_the_one_before(original, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(original, run)
    shutil.rmtree(run / "final")
    newest = RunFolder(run).checkpoints()[-1]
    weights = newest / "training.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    events = []
    regard.train("reverse", out=run, overrides=[*SETTINGS, "train.steps=10"], listen=events.append)
    assert any(isinstance(event, Noted) and newest.name in event.text for event in events)
    for name in ("final/weights.safetensors",):
        assert (run / name).read_bytes() == (original / name).read_bytes()
