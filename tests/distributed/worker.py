"""A process that torchrun or the tests start: it trains, and fails on purpose if requested.

worker.py RECIPE OUT ACCIDENT KEY=VALUE...    ACCIDENT: none, "die RANK STEP" (by SIGKILL, once), "fail RANK STEP" (an error)
"""

import os
import signal
import sys
from pathlib import Path

import regard
from regard.errors import DataError, RegardError

recipe, out, accident, *overrides = sys.argv[1:]
kind, _, where = accident.partition(" ")
calls = 0


def stop() -> bool:
    """Die or fail at the requested step. Called once before the run and once per step."""
    global calls
    calls += 1
    if kind != "none":
        rank, step = map(int, where.split())
        if int(os.environ["RANK"]) == rank and calls == step + 1:
            if kind == "fail":
                raise DataError("the disk of this process has gone")
            mark = Path(out).with_suffix(".died")
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
    return False


try:
    regard.train(recipe, out=out, overrides=overrides, stop=stop, accept=["train.steps", "train.accumulate"])
except RegardError as error:
    sys.exit(f"rank {os.environ['RANK']}: {error}")
