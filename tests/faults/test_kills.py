"""Training processes that are killed at random moments end in the same bits as an uninterrupted run.

`make faults` kills 200 times, CI 25 times.
"""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.run.folder import RunFolder
from tests.commands import python

KILLS = int(os.environ.get("REGARD_KILLS", "8"))
SETTINGS = [
    *("train.checkpoint_every=5", "train.validate_pairs=5", "train.log_every=1", "train.tokens=256", "train.keep=2"),
    *("model.width=32", "model.num_layers=1", "model.hidden=64", "model.dropout=0.1", "train.threads=1"),
    *("train.device=cpu", "train.ema=0.9", "train.average=2"),
]


def progress(run):
    """Return the progress events of the log, without timings."""
    events = RunFolder(run).read_log()
    clock = {"seconds", "tokens_per_second"}
    return [{key: event[key] for key in event.keys() - clock} for event in events if event["event"] == "progress"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("plain", []),
        ("sampled subwords", ["tokenizer.kind=bpe", "tokenizer.size=60", "tokenizer.sampling=0.3"]),
        ("best", ["train.final=best", "train.metric=loss", "train.keep=1", "train.average=1", "train.ema=0.0"]),
    ],
)
def test_a_run_that_is_killed_repeatedly_ends_in_the_same_bits(tmp_path, name, extra):
    kills = KILLS // 3 + 1
    overrides = [*SETTINGS, *extra, f"train.steps={24 * kills}"]
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=overrides)
    script = str(Path(__file__).with_name("killed_training.py"))
    arguments = [script, str(tmp_path / "killed"), str(kills), "1", *overrides]
    program = f"import runpy, sys\nsys.argv = {arguments!r}\nrunpy.run_path({script!r}, run_name='__main__')"
    done = python(program, timeout=60 * kills)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-500:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] == kills, report
    assert report["while_writing"] > 0, report
    assert report["steps"] == sorted(report["steps"]), "a checkpoint was lost"
    expected, killed = (
        load_file(tmp_path / run / "final" / "weights.safetensors") for run in ("uninterrupted", "killed")
    )
    assert expected.keys() == killed.keys()
    assert all(torch.equal(expected[key], killed[key]) for key in expected)
    assert progress(tmp_path / "uninterrupted") == progress(tmp_path / "killed")
