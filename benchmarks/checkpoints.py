"""Measure what a checkpoint costs training: how long training waits, and the processor time of the background write.

python benchmarks/checkpoints.py --out benchmarks/results/checkpoints.json

With one checkpoint per minute, the cost is the share of the minute that training waits, and at most the share of the
machine's processor time that writing uses. Both are measured directly, because the difference of
two throughputs would be lost in noise.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from harness import say
from machine import machine
from regard.config import TrainConfig
from regard.data.batch import make_batch
from regard.models import build_model
from regard.run.folder import RunFolder
from regard.training.data_parallel import DistributedModel
from regard.training.saver import Saver
from regard.training.step import training_step
from regard.training.training_state import TrainingState

MINUTE = 60.0
SIZES = {
    "width 256, 3+3 layers, 8k vocabulary": {"width": 256, "num_layers": 3, "num_heads": 4, "hidden": 1024},
    "the paper's base, 37k vocabulary": {},
}


def measure(table: dict[str, Any], vocabulary: int, saves: int, folder: Path, device: str) -> dict[str, Any]:
    """Return the seconds that training waits for a checkpoint, and the processor seconds of the write."""
    model = build_model({"kind": "transformer", **table}, source_size=vocabulary, target_size=vocabulary).to(device)
    config = TrainConfig()
    state = TrainingState(DistributedModel(model, smoothing=0.1), config)
    training_step(state.distributed, state.optimizer, [make_batch([[5] * 20] * 4, [[6] * 20] * 4)], config, rate=1e-4)
    failures: list[OSError] = []
    saver = Saver(RunFolder(folder), saved=lambda step, path: None, failed=lambda step, error: failures.append(error))
    waits, writes, used = [], [], []
    for step in range(1, saves + 1):
        cpu, began = time.process_time(), time.monotonic()
        saver.save(state.checkpoint(), step=step, keep={step})
        waits.append(time.monotonic() - began)
        saver.wait()
        writes.append(time.monotonic() - began)
        used.append(time.process_time() - cpu)
    assert not failures, failures
    size = sum(path.stat().st_size for path in folder.rglob(f"step-{saves:08}/*"))
    wait, processor = statistics.median(waits), statistics.median(used)
    return {
        "parameters": model.num_parameters(),
        "bytes": size,
        "wait_seconds": round(wait, 4),
        "until_on_disk_seconds": round(statistics.median(writes), 3),
        "processor_seconds": round(processor, 3),
        "share_waited_every_minute": round(wait / MINUTE, 5),
        "share_at_most_every_minute": round(max(wait, processor / torch.get_num_threads()) / MINUTE, 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {}
    for (name, table), vocabulary in zip(SIZES.items(), (8_192, 37_000), strict=True):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            results[name] = measure(table, vocabulary, arguments.saves, Path(folder) / "run", arguments.device)
        say(f"{name}: {results[name]}")
    result = {"benchmark": "checkpoints", "machine": machine(), "device": arguments.device, "sizes": results}
    print(json.dumps(result))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
