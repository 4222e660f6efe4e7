"""One process per system, controlled over pipes; the parent lets them work in turn, never two at once.

Each line on a pipe is one JSON object. The parent sends {"do": "prepare" | "train" | "decode" | "stop", ...}; the
worker answers with its result or with {"error": ...}. The parent stays small (no torch), because some operating systems
count the memory of a parent towards its children.
"""

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import machine_seconds, memory, process_seconds, resident_bytes
from systems import SYSTEMS, Entry
from workload import Setup, decoding_batches, fingerprint, training_batches

Message = dict[str, Any]
DISTURBED = 0.05  # above this share of the machine used by others, a turn does not count


class WorkerError(Exception):
    """A worker failed; the message is the worker's own."""


# --- in the worker


class Servant:
    """A system and its batches, which carries out the requests of the parent."""

    def __init__(self, entry: Entry) -> None:
        module_name, class_name = entry.where.split(":")
        self.system = getattr(importlib.import_module(module_name), class_name)(**entry.options)

    def prepare(self, message: Message) -> Message:
        setup, job = Setup(**message["setup"]), message["job"]
        self.batches = {"train": training_batches, "decode": decoding_batches}[job](setup)
        imported = resident_bytes()
        parameters = self.system.prepare(setup, job)
        return {"parameters": parameters, "fingerprint": fingerprint(self.batches), "imported": imported, **memory()}

    def redraw(self, message: Message) -> Message:
        """Draw other batches for the same model."""
        self.system.setup = Setup(**message["setup"])
        self.batches = decoding_batches(self.system.setup)
        return {"fingerprint": fingerprint(self.batches), **memory()}

    def steps(self, message: Message) -> Message:
        """Measure the steps of a search, and what its device does at most."""
        batches = self.system.collate(self.batches)
        return {**self.system.step_times(batches[len(batches) // 2], message["beam"]), **memory()}

    def train(self, message: Message) -> Message:
        batches = self.system.collate(self.batches)  # not timed: trainers collate while the device works
        seconds, loss = self.system.train_round(batches)
        return {"seconds": seconds, "loss": loss, **memory()}

    def decode(self, message: Message) -> Message:
        batches = self.system.collate(self.batches)
        seconds, outputs = self.system.decode_round(batches, message["beam"])
        lengths = [len(ids) for batch in outputs for ids in batch]
        return {"seconds": seconds, "tokens": sum(lengths), "first": outputs[0], **memory()}


def serve(name: str) -> None:
    """Run the worker's loop: one answer per line read, until a stop request."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to stderr, not to the pipe
    servant = None
    for line in sys.stdin:
        message = json.loads(line)
        if message["do"] == "stop":
            return
        try:
            servant = servant or Servant(SYSTEMS[name])
            answer = getattr(servant, message["do"])(message)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


# --- in the parent


class Worker:
    """A running system as the parent sees it, with its last report."""

    def __init__(self, name: str, setup: Setup, job: str) -> None:
        count = 1 if name.endswith("_parallel") else setup.threads  # these have one batch per thread
        threads = {f"{library}_NUM_THREADS": str(count) for library in ("OMP", "MKL", "OPENBLAS")}
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | threads | offline,
        )
        self.prepared = self.ask(do="prepare", setup=asdict(setup), job=job)
        self.last: Message = self.prepared

    def ask(self, **message: Any) -> Message:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(json.dumps(message), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the process ended with status {self.process.wait()}")
        answer: Message = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        self.last = answer
        return answer

    def take_turn(self, *, attempts: int, **message: Any) -> Message:
        """Return the answer, with the share of the machine that others used; repeat the turn if that was too much.

        Whether a turn counts depends only on the load by others, never on its speed.
        """
        for attempt in range(1, attempts + 1):
            busy, own, began = machine_seconds(), process_seconds(self.process.pid), time.perf_counter()
            answer = self.ask(**message)
            elapsed = time.perf_counter() - began
            others = (machine_seconds() - busy) - (process_seconds(self.process.pid) - own)
            answer["others"] = round(max(0.0, others) / elapsed / (os.cpu_count() or 1), 3)
            if answer["others"] <= DISTURBED:
                break
            again = "; again" if attempt < attempts else ""
            say(f"{self.name}: other processes used {answer['others']:.0%} of the machine meanwhile{again}")
        return answer

    def redraw(self, setup: Setup, expected: int) -> None:
        """Let the worker decode other batches with the same model."""
        found = self.ask(do="redraw", setup=asdict(setup))["fingerprint"]
        assert found == expected, (self.name, found, expected)

    def stop(self) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is None:
            print(json.dumps({"do": "stop"}), file=self.process.stdin, flush=True)
        self.process.stdin.close()
        self.process.wait()

    def memory(self) -> Message:
        """Return memory in MiB after the imports, after building and at the peak; `work` is the peak minus `built`."""
        steps = {
            "imported": self.prepared["imported"],
            "built": self.prepared["resident"],
            "peak": self.last["peak"],
            "work": self.last["peak"] - self.prepared["resident"],
            "cuda_peak": self.last["cuda_peak"],
        }
        return {name: round(size / 2**20, 1) for name, size in steps.items()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def choose(names: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the systems that can run here, and the reasons why the others cannot."""
    left_out = {}
    for name in names:
        missing = [package for package in SYSTEMS[name].requires if importlib.util.find_spec(package) is None]
        if missing:
            left_out[name] = f"not installed: {', '.join(missing)}"
            say(f"{name}: left out, {left_out[name]}")
    return [name for name in names if name not in left_out], left_out


def start(names: list[str], setup: Setup, job: str, expected: int) -> tuple[list[Worker], dict[str, str]]:
    """Return the workers that are ready, in the given order, and the errors of the others."""
    workers, failed = [], {}
    for name in names:
        try:
            worker = Worker(name, setup, job)
        except WorkerError as error:
            failed[name] = str(error)
            say(f"{name}: left out, {error}")
            continue
        assert worker.prepared["fingerprint"] == expected, (name, worker.prepared["fingerprint"], expected)
        say(f"{name}: {worker.prepared['parameters']:,} parameters")
        workers.append(worker)
    return workers, failed


def check_parameters(workers: list[Worker]) -> None:
    counts = {worker.name: worker.prepared["parameters"] for worker in workers}
    if counts and max(counts.values()) > 1.01 * min(counts.values()):
        raise SystemExit(f"the models differ by more than 1 % in size, so their speeds cannot be compared: {counts}")


def speeds(answers: list[Message], tokens: int) -> Message:
    """Return tokens per second (the median, the best and all rounds), and the load by others in each round."""
    rounds = [tokens / answer["seconds"] for answer in answers]
    return {
        "tokens_per_second": round(statistics.median(rounds), 1),
        "best": round(max(rounds), 1),
        "rounds": [round(speed, 1) for speed in rounds],
        "others": [answer["others"] for answer in answers],
    }


def quiet(answers: list[Message]) -> bool:
    """Return whether every turn had the machine nearly to itself, so that the numbers can be quoted."""
    return all(answer["others"] <= DISTURBED for answer in answers)


def ratios(speed: dict[str, float], of: str) -> dict[str, float]:
    """Return the speed of system `of` divided by that of each other system; empty if it did not run."""
    return {name: round(speed[of] / other, 3) for name, other in speed.items() if of in speed and name != of}


def add_run_flags(parser: argparse.ArgumentParser, job: str) -> None:
    known = ", ".join(name for name, entry in SYSTEMS.items() if job in entry.jobs)
    parser.add_argument("--systems", help=f"comma-separated subset of: {known}")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of every system, taken in turn")
    parser.add_argument("--warmup", type=int, default=1, help="untimed rounds of every system before the timed ones")
    parser.add_argument("--attempts", type=int, default=1, help="tries at a turn while other processes are busy")
    parser.add_argument("--out", type=Path, help="also write the JSON here")


def parse_systems(given: str | None, job: str, default: list[str]) -> list[str]:
    known = [name for name, entry in SYSTEMS.items() if job in entry.jobs]
    names = given.split(",") if given else default
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no system for this is called {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def finish(result: Message, out: Path | None) -> None:
    """Print the result as the last line of stdout; exit with 1 if a requested system did not run."""
    line = json.dumps(result)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(line + "\n")
    print(line)
    if result["failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    serve(sys.argv[1])
