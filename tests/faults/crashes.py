"""Records the file operations of a command, then tests recovery from every state that a crash may leave.

`python -m tests.faults.crashes`, started by `Scenarios`, reads one scenario per line and writes a report about some of its
states, or all. Each scenario, session of the command and state is run in a forked process, so that PyTorch is imported once.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import sacrebleu.metrics  # noqa: F401 (slow to import; inherited by all forked processes)

from regard.errors import RegardError
from tests.faults.replay import NOTHING_UNSYNCED, Recording, State, read_log, read_tree, write_tree
from tests.faults.scenarios import LEFTOVERS, SCENARIOS, Scenario, make_home

REPOSITORY = Path(__file__).parents[2]
OUT = "out"  # name of the output folder inside the recorded folder
DONE = "done"  # the mark of a command that has returned
MAX_SECONDS = 120  # for one state; more is a hang
SAMPLED_PREFIXES = 40
GOOD = {"same bits", "already complete", "refused by name"}

Verdict = dict[str, str]


# Recording


def build_recorder(folder: Path) -> Path | None:
    """Compile the recorder; return None if there is no C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "record.so"
    source = Path(__file__).with_name("record.c")
    flags = ["-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library


def recorded(command: list[str], folder: Path, log: Path, recorder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command and record its file operations below the folder."""
    environment = with_recorder(recorder) | {"RECORD_FOLDER": str(folder.resolve()), "RECORD_LOG": str(log)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def with_recorder(recorder: Path) -> dict[str, str]:
    paths = [str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LD_PRELOAD": str(recorder)}


class Scenarios:
    """The process that runs scenarios."""

    def __init__(self, recorder: Path) -> None:
        command = [sys.executable, "-m", "tests.faults.crashes"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=with_recorder(recorder), text=True, **pipes)  # type: ignore[call-overload]

    def run(self, name: str, folder: Path, *, count: int | None, seed: int, jobs: int) -> dict[str, Any]:
        """Return the report about some states, or all, with the files of the scenario below a folder."""
        request = {"name": name, "folder": str(folder.resolve()), "count": count, "seed": seed, "jobs": jobs}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = self.process.stdout.readline()
        assert status == "0\n", (status, (folder / "errors.txt").read_text(encoding="utf-8")[-3000:])
        return json.loads((folder / "report.json").read_text(encoding="utf-8"))

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def record(name: str, home: Path, out: Path) -> None:
    """Record all sessions, each in a forked process: first those that kill themselves, then one that completes."""
    for text, operations in SCENARIOS[name].kills:
        _, status = os.waitpid(forked(lambda: session(name, home, out, text, operations)), 0)  # noqa: B023
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"no session was killed after {text!r}: {status}"
    wait_for(forked(lambda: session(name, home, out, "", 0)))


def session(name: str, home: Path, out: Path, text: str, operations: int) -> None:
    """Run the command; kill it `operations` operations after it has reported `text`."""
    recorder = ctypes.CDLL(None)

    def mark(event: str) -> None:
        recorder.record_mark(event.encode())
        if event == text:
            recorder.record_kill_after(ctypes.c_long(operations))

    SCENARIOS[name].run(home, out, mark)
    mark(DONE)


# Testing one state


def attempt(scenario: Scenario, home: Path, out: Path, marks: list[str], wanted: dict[str, Any]) -> Verdict:
    """Open and resume a folder: it must open or be refused, keep what was reported as saved, and give the same result."""
    doing = "opening"
    try:
        with suppress(RegardError):
            scenario.look(home, out)
        finished = scenario.finished(out)
        doing = "checking what was reported as saved"
        if problem := scenario.lost(out, marks):
            return verdict("lost", problem, out)
        if DONE in marks and (problem := difference(scenario.result(out), wanted, finished=finished)):
            return verdict("lost", f"the command had completed, but: {problem}", out)
        doing = "running the command again"
        try:
            scenario.run(home, out, lambda event: None)
        except RegardError as error:
            if not difference(scenario.result(out), wanted, finished=finished):
                return verdict("already complete", str(error), out)
            return refusal(scenario, str(error), out)
        doing = "comparing the result"
        if problem := difference(scenario.result(out), wanted, finished=finished):
            return verdict("different result", problem, out)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return verdict("failed", f"{doing}: {type(error).__name__}: {error} ({where})", out)
    return verdict("same bits", "", out)


def verdict(name: str, detail: str, out: Path) -> Verdict:
    return {"verdict": name, "detail": detail.replace(str(out), "OUT")}


def refusal(scenario: Scenario, message: str, out: Path) -> Verdict:
    if str(out) not in message:
        return verdict("refused without a name", message, out)
    justified = any(re.search(pattern, message) for pattern in scenario.refusals)
    return verdict("refused by name" if justified else "refused without need", message, out)


def difference(found: dict[str, Any], wanted: dict[str, Any], *, finished: bool) -> str:
    """Describe the first differences. Leftovers in a folder that was finished before the crash are ignored."""
    keys = {**wanted, **found}.keys() - ({LEFTOVERS} if finished else set())
    different = sorted(key for key in keys if found.get(key) != wanted.get(key))
    return "; ".join(f"{key}: {_shown(found.get(key), wanted.get(key))}" for key in different[:3])


def _shown(found: Any, wanted: Any) -> str:
    if isinstance(found, list) and isinstance(wanted, list):
        missing = [one for one in wanted if one not in found]
        extra = [one for one in found if one not in wanted]
        return f"missing {str(missing)[:150]}, extra {str(extra)[:150]}"
    return "missing" if found is None else "not expected" if wanted is None else "differs"


# Testing all states


def check(name: str, recording: Recording, home: Path, *, count: int | None, seed: int, jobs: int) -> dict[str, Any]:
    """Test all states of a recording, or a sample of them; return a report."""
    states = list(recording.states(seed, sample=None if count is None else SAMPLED_PREFIXES))
    chosen = states if count is None else random.Random(seed).sample(states, min(count, len(states)))
    chosen += [state for state in states if state not in chosen and is_worst(state, recording)]
    verdicts: Counter[str] = Counter()
    kinds: dict[str, dict[str, Any]] = {}
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast, prefix="crashes-") as folder:
        work = Path(folder)
        wait_for(forked(lambda: write_reference(name, home, work)))
        for state, found in tried(name, recording, chosen, home, work, jobs):
            verdicts[found["verdict"]] += 1
            kind = f"{found['verdict']}: {re.sub('[0-9]+', 'N', found['detail'])}"
            last = recording.operations[state.after - 1] if state.after else "none"
            example = f"after {state.after} operations (the last: {last}), {state.how}"
            kinds.setdefault(kind, {"count": 0, **found, "example": example})["count"] += 1
    return {
        "scenario": name,
        "operations": len(recording.operations),
        "prefixes": len(recording.operations) + 1,
        "states": len(states),
        "tried": len(chosen),
        "verdicts": dict(verdicts),
        "kinds": list(kinds.values()),
    }


def is_worst(state: State, recording: Recording) -> bool:
    """Return whether this is the end of the recording with everything unsynced lost; every sample contains it."""
    return state.after == len(recording.operations) and state.how == NOTHING_UNSYNCED


def write_reference(name: str, home: Path, work: Path) -> None:
    """Write the result of a command that is not interrupted."""
    SCENARIOS[name].run(home, work / OUT, lambda event: None)
    (work / "wanted.json").write_text(json.dumps(SCENARIOS[name].result(work / OUT)), encoding="utf-8")


def tried(
    name: str, recording: Recording, states: list[State], home: Path, work: Path, jobs: int
) -> Iterator[tuple[State, Verdict]]:
    """Yield each state and its verdict, testing `jobs` states at a time."""
    wanted = json.loads((work / "wanted.json").read_text(encoding="utf-8"))
    running: dict[int, tuple[State, Path]] = {}
    waiting = iter(enumerate(states))
    while True:
        while len(running) < jobs and (following := next(waiting, None)) is not None:
            number, state = following
            disk = work / f"state-{number}"
            write_tree(state.tree, disk)

            def work_in_child(state: State = state, disk: Path = disk) -> None:
                found = attempt(SCENARIOS[name], home, disk / OUT, recording.marks(state.after), wanted)
                (disk / "verdict.json").write_text(json.dumps(found), encoding="utf-8")

            running[forked(work_in_child)] = state, disk
        if not running:
            return
        child, status = os.wait()
        state, disk = running.pop(child)
        if status == 0:
            yield state, json.loads((disk / "verdict.json").read_text(encoding="utf-8"))
        else:
            yield state, verdict("failed", f"the process exited with {os.waitstatus_to_exitcode(status)}", disk)
        shutil.rmtree(disk)


def forked(work: Callable[[], None], *, seconds: int = MAX_SECONDS) -> int:
    """Run a function in a forked process, for some time at most (0: any); return the process id."""
    child = os.fork()
    if child:
        return child
    signal.alarm(seconds)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait_for(child: int) -> None:
    assert os.waitpid(child, 0)[1] == 0


def run_scenario(name: str, folder: str, count: int | None, seed: int, jobs: int) -> None:
    """Write report.json, and to errors.txt what is printed."""
    place = Path(folder)
    home, disk, log = place / "home", place / "disk", place / "operations.log"
    with (place / "errors.txt").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    disk.mkdir()
    ctypes.CDLL(None).record_below(str(disk).encode(), str(log).encode())
    wait_for(forked(lambda: make_home(home, teacher=SCENARIOS[name].teacher)))
    record(name, home, disk / OUT)
    recording = Recording(read_log(log))
    assert recording.final() == read_tree(disk), "an operation was not recorded"
    found = check(name, recording, home, count=count, seed=seed, jobs=jobs)
    (place / "report.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    for line in sys.stdin:
        child = forked(lambda: run_scenario(**json.loads(line)), seconds=0)  # noqa: B023
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
