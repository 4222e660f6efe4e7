"""A training run that is killed again and again: `python tests/faults/lives.py RUN KILLS SEED [KEY=VALUE ...]`.

Each life is a forked process that trains as `regard train` would, and is ended by SIGKILL at a random moment; the last one
may finish. Forking saves the seconds that importing PyTorch takes. The last line of output is a report, as JSON.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path


def live(run: Path, overrides: list[str]) -> None:
    """One life, in a process of its own."""
    from regard import api

    try:
        outcome = api.train("reverse", out=run, overrides=overrides)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0 if outcome.finished else 3)


def being_written(run: Path) -> bool:
    return any((run / "checkpoints").glob(".*.tmp")) or any(run.glob(".final.*.tmp"))


def wait_to_die(run: Path, child: int, generator: random.Random) -> None:
    """Until a random moment: in one life of eight before training begins, else in it, half the time in a checkpoint."""

    def wait_until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not condition():
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
            time.sleep(0.0005)

    if generator.random() < 1 / 8:
        wait_until(lambda: False, generator.uniform(0.0, 1.0))
        return
    before = written(run)
    wait_until(lambda: written(run) != before, 60)
    wait_until(lambda: False, generator.uniform(0.0, 0.5))
    if generator.random() < 0.5:
        wait_until(lambda: being_written(run), 2)
        wait_until(lambda: False, generator.uniform(0.0, 0.01))


def written(run: Path) -> int:
    """When the log was last written: training begins with that."""
    path = run / "log.jsonl"
    return path.stat().st_mtime_ns if path.exists() else 0


def main() -> None:
    run, kills, seed, *overrides = sys.argv[1:]
    import regard.api  # imported once, here: the lives inherit it

    assert regard.api
    generator, folder = random.Random(int(seed)), Path(run)
    report = {"kills": 0, "while_writing": 0, "lives": 0, "steps": []}
    while True:
        report["lives"] += 1
        child = os.fork()
        if child == 0:
            live(folder, overrides)
        if report["kills"] < int(kills):
            wait_to_die(folder, child, generator)
            writing = being_written(folder)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                report["kills"] += 1
                report["while_writing"] += writing
                steps = [int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")]
                report["steps"].append(max(steps, default=0))
                continue
        else:
            _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"a life ended with {os.waitstatus_to_exitcode(status)}")
        break
    print(json.dumps(report))


if __name__ == "__main__":
    main()
