"""After a crash at any moment, every command can complete its folder, bit-identical to an uninterrupted run.

The file operations of a command are recorded, and recovery is tested from every state that a power failure may leave (see
tests/faults/replay.py). `make faults` tests all states, `make test-slow` a sample. REGARD_FAULTS_OUT names a JSON file for
the counts.
"""

import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.faults.crashes import GOOD, Scenarios, build_recorder
from tests.faults.scenarios import SCENARIOS

EVERYTHING = os.environ.get("REGARD_CRASHES") == "all"
SAMPLE = {"train": 8, "prepare": 8, "export": 8, "distill": 8}
SEED = 1


def publish(report):
    """Print the counts, and add them to the JSON file that REGARD_FAULTS_OUT names."""
    counts = ", ".join(f"{number} {what}" for what, number in report["verdicts"].items())
    print(
        f"{report['scenario']}: {report['prefixes']} prefixes, {report['tried']} of {report['states']} states: {counts}"
    )
    for kind in report["kinds"]:
        print(f"  {kind['count']} x {kind['verdict']}: {kind['detail']}")
    if path := os.environ.get("REGARD_FAULTS_OUT"):
        with Path(path).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # other scenarios run at the same time
            file.seek(0)
            reports = json.loads(file.read() or "{}")
            file.truncate(0)
            file.write(json.dumps({**reports, report["scenario"]: report}, indent=1) + "\n")


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    recorder = build_recorder(tmp_path_factory.mktemp("recorder"))
    if recorder is None:
        pytest.skip("there is no C compiler here to build the recorder with")
    started = Scenarios(recorder)
    yield started
    started.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_is_recovered_from_or_refused_by_name(scenarios, tmp_path, name):
    count, jobs = (None, 2) if EVERYTHING else (SAMPLE[name], 1)
    found = scenarios.run(name, tmp_path, count=count, seed=SEED, jobs=jobs)
    publish(found)
    assert sum(found["verdicts"].values()) == found["tried"] > 0
    wrong = [kind for kind in found["kinds"] if kind["verdict"] not in GOOD]
    assert not wrong, json.dumps(wrong, indent=1)
