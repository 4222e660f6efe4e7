"""Compare decoding speed and memory with those of our peers: target tokens of the best hypotheses per second.

python benchmarks/decode.py --out benchmarks/results/decode-neoverse.json
python benchmarks/decode.py --preset base --device cuda --precision bf16 --sizes 1,64,512 --output 32 --batches 5 \\
    --systems ours,marian --out benchmarks/results/decode-h200.json

On a GPU our model is the one that `regard.load` makes: recorded steps, and search on the device.
"""

import argparse
from dataclasses import asdict, replace

import harness
from harness import Message, Worker, say
from machine import machine
from systems import systems_for
from workload import Setup, add_setup_flags, decoding_batches, describe, setup_from

SAME_WEIGHTS = ("marian", "ctranslate2")


def run_rounds(
    workers: list[Worker], beams: list[int], rounds: int, attempts: int, tokens: int
) -> dict[str, dict[int, list[Message]]]:
    """Return the answers of all rounds by worker and beam size. The workers take turns within a beam size."""
    answers: dict[str, dict[int, list[Message]]] = {worker.name: {beam: [] for beam in beams} for worker in workers}
    for number in range(1, rounds + 1):
        for beam in beams:
            shown = []
            for worker in workers:
                answer = worker.take_turn(attempts=attempts, do="decode", beam=beam)
                assert answer["tokens"] == tokens, (worker.name, beam, answer["tokens"], tokens)
                answers[worker.name][beam].append(answer)
                shown.append(f"{worker.name} {tokens / answer['seconds']:,.0f} tokens/s")
            say(f"round {number}/{rounds}, beam {beam}: " + "; ".join(shown))
    return answers


def report(worker: Worker, answers: dict[int, list[Message]], tokens: int) -> Message:
    return {
        "parameters": worker.prepared["parameters"],
        "beams": {str(beam): harness.speeds(rounds, tokens) for beam, rounds in answers.items()},
        "memory_mib": worker.memory(),
    }


def compare(systems: dict[str, Message], beams: list[int], key: str, of: str = "ours") -> Message:
    """Return the speed of system `of` divided by that of each other system, by beam size."""
    return {
        str(beam): harness.ratios({name: system["beams"][str(beam)][key] for name, system in systems.items()}, of)
        for beam in beams
    }


def agreement(answers: dict[str, dict[int, list[Message]]], beams: list[int]) -> Message:
    """Return the share of equal tokens, position by position, between the peers with the same weights.

    It verifies the conversion. Random weights cause near-ties, so rounding alone can make two outputs differ.
    """
    if not all(name in answers and answers[name][beams[0]] for name in SAME_WEIGHTS):
        return {}
    shares = {}
    for beam in beams:
        here, there = (answers[name][beam][0]["first"] for name in SAME_WEIGHTS)
        pairs = [(a, b) for one, other in zip(here, there, strict=True) for a, b in zip(one, other, strict=True)]
        shares[str(beam)] = round(sum(a == b for a, b in pairs) / len(pairs), 4)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    harness.add_run_flags(parser, "decode")
    parser.add_argument("--beams", default="1,4", help="beam sizes, comma-separated; 1 is greedy search")
    parser.add_argument("--sizes", help="several batch sizes, comma-separated, in place of --sentences")
    add_setup_flags(parser)
    arguments = parser.parse_args()
    setup = setup_from(arguments)
    beams = [int(beam) for beam in arguments.beams.split(",")]
    names = harness.parse_systems(arguments.systems, "decode", systems_for("decode", compiled=False))
    if setup.device != "cpu" or setup.precision != "fp32":
        names = [name for name in names if not name.startswith("engine")]  # for CPUs

    sizes = [int(size) for size in (arguments.sizes or str(setup.sentences)).split(",")]
    setups = [replace(setup, sentences=size) for size in sizes]
    names, left_out = harness.choose(names)
    first = describe(decoding_batches(setups[0]))
    workers, failed = harness.start(names, setups[0], "decode", first["fingerprint"])
    try:
        harness.check_parameters(workers)
        measured = {str(one.sentences): measure(workers, one, beams, arguments) for one in setups}
    finally:
        for worker in workers:
            worker.stop()

    only = measured[str(sizes[0])] if len(sizes) == 1 else {"sizes": measured}
    for size, found in measured.items():
        for beam, ratio in found["ours_over"].items():
            say(f"{size} sentences, beam {beam}: " + line_of(found, beam, ratio))
    result = {
        "benchmark": "decode",
        "machine": machine(),
        "setup": asdict(setup),
        **only,
        "left_out": left_out,
        "failed": failed,
    }
    harness.finish(result, arguments.out)


def line_of(found: Message, beam: str, ratio: dict[str, float]) -> str:
    speeds = [
        f"{name} {one['beams'][beam]['tokens_per_second']:,.0f} tokens/s" for name, one in found["systems"].items()
    ]
    line = "; ".join(speeds) + "".join(f"; {times:.1f}x {name}" for name, times in ratio.items())
    if beam in found["steps"]:
        step = found["steps"][beam]
        line += f"; a step takes {step['microseconds']:.0f} us, its memory traffic {step['floor_microseconds']:.0f} us"
    return line


def measure(workers: list[Worker], setup: Setup, beams: list[int], arguments: argparse.Namespace) -> Message:
    """Return the speeds of all workers with batches of one size."""
    data = describe(decoding_batches(setup))
    tokens = data["sentences"] * setup.output
    say(f"data: {data}")
    for worker in workers:
        worker.redraw(setup, data["fingerprint"])
    for _ in range(arguments.warmup):
        for worker in workers:
            for beam in beams:
                worker.ask(do="decode", beam=beam)
    answers = run_rounds(workers, beams, arguments.rounds, arguments.attempts, tokens)
    systems = {worker.name: report(worker, answers[worker.name], tokens) for worker in workers}
    every = [answer for by_beam in answers.values() for rounds in by_beam.values() for answer in rounds]
    return {
        "data": data,
        "systems": systems,
        "quiet": harness.quiet(every),
        "ours_over": compare(systems, beams, "tokens_per_second"),
        "ours_over_best": compare(systems, beams, "best"),
        "engine_int8_over": compare(systems, beams, "tokens_per_second", "engine_int8"),
        "marian_equals_ctranslate2": agreement(answers, beams),
        "steps": steps_of(workers, beams) if setup.device.startswith("cuda") else {},
    }


def steps_of(workers: list[Worker], beams: list[int]) -> Message:
    """Return the time of one of our steps on a GPU, and the time that its memory traffic takes at least, by beam size."""
    found: Message = {}
    for worker in workers:
        for beam in beams if worker.name == "ours" else []:
            step = worker.ask(do="steps", beam=beam)
            found[str(beam)] = {
                "microseconds": round(1e6 * step["seconds"], 1),
                "floor_microseconds": round(1e6 * step["bytes"] / step["bytes_per_second"], 1),
                "bytes": round(step["bytes"]),
                "operations": round(step["operations"]),
                "copy_bytes_per_second": round(step["bytes_per_second"]),
            }
    return found


if __name__ == "__main__":
    main()
