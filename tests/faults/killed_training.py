"""A training run that is killed repeatedly: `python tests/faults/killed_training.py RUN KILLS SEED [KEY=VALUE ...]`.

Each attempt is a forked process that trains as `regard train` would. It is killed by SIGKILL at a random moment; the last
attempt may finish. Forking saves the seconds that importing PyTorch takes. The last line of output is a report in JSON.
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


def attempt(run: Path, overrides: list[str]) -> None:
    """Train until the end or until this process is killed."""
    from regard import api

    try:
        outcome = api.train("reverse", out=run, overrides=overrides)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0 if outcome.finished else 3)


def being_written(run: Path) -> bool:
    return any((run / "checkpoints").glob(".*.tmp")) or any(run.glob(".final.*.tmp"))


def wait_randomly(run: Path, child: int, generator: random.Random, *, in_checkpoint: bool) -> None:
    """Wait for a random moment, in one attempt of four before training starts; or for one while a checkpoint is written.

    The process is stopped then, so that the checkpoint stays as it is until the process is killed.
    """

    def has_ended() -> bool:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait_until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not condition() and not has_ended():
            time.sleep(0.0005)

    if not in_checkpoint and generator.random() < 1 / 4:
        wait_until(lambda: False, generator.uniform(0.0, 1.0))
        return
    before = log_time(run)
    wait_until(lambda: log_time(run) != before, 60)
    wait_until(lambda: False, generator.uniform(0.0, 0.5))
    longest = 0.01
    while in_checkpoint and not has_ended():
        wait_until(lambda: being_written(run), 60)
        wait_until(lambda: False, generator.uniform(0.0, longest))
        os.kill(child, signal.SIGSTOP)
        os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if being_written(run):
            return
        os.kill(child, signal.SIGCONT)
        longest /= 2  # the checkpoint was complete before


def log_time(run: Path) -> int:
    """Return when the log was last written; training starts with that."""
    path = run / "log.jsonl"
    return path.stat().st_mtime_ns if path.exists() else 0


def main() -> None:
    run, kills, seed, *overrides = sys.argv[1:]
    import regard.api  # imported once and inherited by the attempts

    assert regard.api
    generator, folder = random.Random(int(seed)), Path(run)
    report = {"kills": 0, "while_writing": 0, "attempts": 0, "steps": []}
    while True:
        report["attempts"] += 1
        child = os.fork()
        if child == 0:
            attempt(folder, overrides)
        if report["kills"] < int(kills):
            wait_randomly(folder, child, generator, in_checkpoint=report["attempts"] % 2 == 0)
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
            raise SystemExit(f"an attempt exited with {os.waitstatus_to_exitcode(status)}")
        break
    print(json.dumps(report))


if __name__ == "__main__":
    main()
