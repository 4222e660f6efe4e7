"""Compare the engine in C with CTranslate2 on a CPU: target tokens per second, and memory.

    python benchmarks/engine.py --out benchmarks/results/engine-cpu.json
    python benchmarks/engine.py --threads 2,4,8,16 --batches-of 32 --out benchmarks/results/engine-threads.json

Each row is one batch at a time over all threads, or several batches at once; float32 or 8-bit integers. The systems take
turns in one run.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import harness
from harness import Message, say
from machine import machine
from workload import PRESETS, Setup, decoding_batches, describe

KINDS = ("", "_int8", "_parallel", "_int8_parallel")
FEWEST = 320  # sentences of a round, so that a round lasts long enough to be measured


def measure(setup: Setup, beams: list[int], rounds: int, attempts: int, kinds: list[str]) -> list[Message]:
    """Return the rows of one setup: a speed of each system for every beam size and kind."""
    data = describe(decoding_batches(setup))
    tokens = data["sentences"] * setup.output
    names, left_out = harness.choose([f"{system}{kind}" for kind in kinds for system in ("engine", "ctranslate2")])
    workers, failed = harness.start(names, setup, "decode", data["fingerprint"])
    rows = []
    try:
        harness.check_parameters(workers)
        for beam in beams:
            for worker in workers:
                worker.ask(do="decode", beam=beam)
            answers: dict[str, list[Message]] = {worker.name: [] for worker in workers}
            for _ in range(rounds):
                for worker in workers:
                    answers[worker.name].append(worker.take_turn(attempts=attempts, do="decode", beam=beam))
            found = {worker.name: harness.speeds(answers[worker.name], tokens) for worker in workers}
            for kind in kinds:
                ours, theirs = found.get(f"engine{kind}"), found.get(f"ctranslate2{kind}")
                row: Message = {
                    "threads": setup.threads,
                    "batch": setup.sentences,
                    "beam": beam,
                    "kind": kind.strip("_") or "float32",
                    "engine": ours,
                    "ctranslate2": theirs,
                }
                shown = f"threads {setup.threads}, batch {setup.sentences}, beam {beam}, {row['kind']}:"
                if ours and theirs:
                    row["ratio"] = round(ours["tokens_per_second"] / theirs["tokens_per_second"], 2)
                    speeds = f"{ours['tokens_per_second']:,.0f} and {theirs['tokens_per_second']:,.0f} tokens/s"
                    say(f"{shown} {speeds}, {row['ratio']}x")
                elif ours:
                    say(f"{shown} {ours['tokens_per_second']:,.0f} tokens/s")
                rows.append(row)
    finally:
        for worker in workers:
            worker.stop()
    memory = {worker.name: worker.memory() for worker in workers}
    return [{**row, "memory_mib": memory, "left_out": left_out, "failed": failed} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="small")
    parser.add_argument("--threads", default="2", help="numbers of threads, comma-separated")
    parser.add_argument("--batches-of", default="1,32", help="sentences per batch, comma-separated")
    parser.add_argument("--beams", default="1,4", help="beam sizes, comma-separated; 1 is greedy search")
    parser.add_argument("--kinds", default=",".join(kind.strip("_") or "float32" for kind in KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=FEWEST, help="of a round")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    kinds = ["" if kind == "float32" else f"_{kind}" for kind in arguments.kinds.split(",")]
    rows: list[Message] = []
    for threads in map(int, arguments.threads.split(",")):
        for sentences in map(int, arguments.batches_of.split(",")):
            count = max(2, arguments.sentences // (8 if sentences == 1 else 1) // sentences)
            setup = replace(PRESETS[arguments.preset], threads=threads, sentences=sentences, batches=count)
            beams = [int(beam) for beam in arguments.beams.split(",")]
            rows += measure(setup, beams, arguments.rounds, arguments.attempts, kinds)
    failed = {name: why for row in rows for name, why in row["failed"].items()}
    result = {"benchmark": "engine", "machine": machine(), "setup": asdict(setup), "rows": rows, "failed": failed}
    harness.finish(result, arguments.out)


if __name__ == "__main__":
    main()
