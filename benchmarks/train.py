"""Compare training speed and memory with those of our peers: real target tokens per second.

python benchmarks/train.py --out benchmarks/results/train-cpu.json
"""

import argparse
import statistics
from dataclasses import asdict

import harness
from harness import Message, Worker, say
from machine import machine
from systems import systems_for
from workload import add_setup_flags, describe, setup_from, training_batches, training_flops


def run_rounds(workers: list[Worker], rounds: int, attempts: int, tokens: int) -> dict[str, list[Message]]:
    """Return the answers of all rounds by worker. The workers take turns, so that a noisy minute affects all."""
    answers: dict[str, list[Message]] = {worker.name: [] for worker in workers}
    for number in range(1, rounds + 1):
        shown = []
        for worker in workers:
            answer = worker.take_turn(attempts=attempts, do="train")
            answers[worker.name].append(answer)
            shown.append(f"{worker.name} {tokens / answer['seconds']:,.0f} tokens/s (loss {answer['loss']:.3f})")
        say(f"round {number}/{rounds}: " + "; ".join(shown))
    return answers


def report(worker: Worker, answers: list[Message], tokens: int, flops: float) -> Message:
    return {
        "parameters": worker.prepared["parameters"],
        **harness.speeds(answers, tokens),
        "seconds": round(statistics.median(answer["seconds"] for answer in answers), 4),
        "tflops": round(statistics.median(flops / answer["seconds"] for answer in answers) / 1e12, 2),
        "losses": [round(answer["loss"], 4) for answer in answers],
        "memory_mib": worker.memory(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    harness.add_run_flags(parser, "train")
    parser.add_argument("--compile-peers", action="store_true", help="add a torch.compile variant of each torch peer")
    add_setup_flags(parser)
    arguments = parser.parse_args()
    setup = setup_from(arguments)
    names = harness.parse_systems(arguments.systems, "train", systems_for("train", compiled=arguments.compile_peers))

    data = describe(training_batches(setup))
    say(f"data: {data}")
    names, left_out = harness.choose(names)
    workers, failed = harness.start(names, setup, "train", data["fingerprint"])
    try:
        harness.check_parameters(workers)
        for _ in range(arguments.warmup):
            for worker in workers:
                worker.ask(do="train")
        answers = run_rounds(workers, arguments.rounds, arguments.attempts, data["target_tokens"])
    finally:
        for worker in workers:
            worker.stop()

    flops = training_flops(setup, data["source_tokens"], data["target_tokens"])
    systems = {worker.name: report(worker, answers[worker.name], data["target_tokens"], flops) for worker in workers}
    ours = next((name for name in systems if name.startswith("ours")), "ours")  # other families have their own names
    result = {
        "benchmark": "train",
        "machine": machine(),
        "setup": asdict(setup),
        "data": data,
        "systems": systems,
        "quiet": harness.quiet([answer for rounds in answers.values() for answer in rounds]),
        "ours_over": harness.ratios({name: one["tokens_per_second"] for name, one in systems.items()}, ours),
        "ours_over_best": harness.ratios({name: one["best"] for name, one in systems.items()}, ours),
        "left_out": left_out,
        "failed": failed,
    }
    harness.finish(result, arguments.out)


if __name__ == "__main__":
    main()
