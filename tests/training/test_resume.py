"""A run that was stopped, or killed, goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import regard
from regard.errors import ConfigError
from regard.run.folder import RunFolder
from regard.training.events import Noted, Progress

SETTINGS = [
    *(
        "train.steps=30",
        "train.checkpoint_every=10",
        "train.validate_pairs=10",
        "train.log_every=1",
        "train.tokens=128",
    ),
    *("model.width=16", "model.num_layers=1", "model.hidden=16", "model.dropout=0.1", "train.threads=1"),
]
PLAIN: list[str] = []
WITH_AVERAGE = ["train.ema=0.9", "train.accumulate=2", "train.average=2"]


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


@pytest.mark.parametrize("extra", [PLAIN, WITH_AVERAGE], ids=["plain", "ema, accumulation, averaging"])
def test_stopped_and_resumed_equals_never_stopped_bit_for_bit(tmp_path, extra):
    regard.train("reverse", out=tmp_path / "whole", overrides=[*SETTINGS, *extra])
    listen, stop = stop_after(13)
    first = regard.train("reverse", out=tmp_path / "parts", overrides=[*SETTINGS, *extra], listen=listen, stop=stop)
    assert not first.finished
    assert regard.train("reverse", out=tmp_path / "parts", overrides=[*SETTINGS, *extra]).finished
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(whole[name].equal(parts[name]) for name in whole)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    regard.train("reverse", out=tmp_path / "whole", overrides=SETTINGS)
    call = f"regard.train('reverse', out='killed', overrides={SETTINGS!r}, listen=lambda e: print(e, flush=True))"
    process = subprocess.Popen(
        [sys.executable, "-c", f"import regard; {call}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Progress(step=17,"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    assert not RunFolder(tmp_path / "killed").finished
    regard.train("reverse", out=tmp_path / "killed", overrides=SETTINGS)
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(whole[name].equal(killed[name]) for name in whole)
    assert losses(tmp_path / "whole") == losses(tmp_path / "killed")


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path):
    listen, stop = stop_after(25)
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen, stop=stop)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    path = newest / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    notes = []
    listen = lambda event: notes.append(event.text) if isinstance(event, Noted) else None  # noqa: E731
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS, listen=listen)
    assert any(newest.name in note and "damaged" in note for note in notes)
    regard.train("reverse", out=tmp_path / "whole", overrides=SETTINGS)
    whole, mended = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert all(whole[name].equal(mended[name]) for name in whole)


def test_another_recipe_is_refused_with_what_differs(tmp_path):
    regard.train("reverse", out=tmp_path / "run", overrides=SETTINGS)
    with pytest.raises(ConfigError, match=r"train\.seed: 1 -> 2"):
        regard.train("reverse", out=tmp_path / "run", overrides=[*SETTINGS, "train.seed=2"])
