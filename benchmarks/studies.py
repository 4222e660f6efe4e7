"""Run many training jobs, a few at a time, each in its own process, and collect the results."""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import say
from machine import machine


@dataclass(frozen=True)
class Job:
    """A recipe and its overrides."""

    name: str
    recipe: str
    overrides: tuple[str, ...]


def run_job(job: Job, data: Path, beam: int) -> dict[str, Any]:
    """Train and score on the dev set in a new process; return dev loss and BLEU, BLEU over steps, speed."""
    command = [sys.executable, str(Path(__file__)), job.recipe, str(data), str(beam), *job.overrides]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{job.name} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    say(f"{job.name}: dev loss {result['loss']:.3f}, BLEU {result['bleu']:.2f}, {time.monotonic() - began:.0f} s")
    return {"overrides": list(job.overrides), **result}


def run_jobs(jobs: Sequence[Job], data: Path, out: Path, *, beam: int, at_once: int) -> dict[str, dict[str, Any]]:
    """Return the results of all jobs by name. Each result is kept in a file next to `out`, and its job is not repeated."""
    kept = out.with_suffix(".runs")
    kept.mkdir(parents=True, exist_ok=True)

    def run_or_read(job: Job) -> dict[str, Any]:
        path = kept / (hashlib.sha256(repr(job).encode()).hexdigest()[:16] + ".json")
        if not path.exists():
            path.write_text(json.dumps(run_job(job, data, beam)), encoding="utf-8")
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip([job.name for job in jobs], pool.map(run_or_read, jobs), strict=True))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="result file: .json, with .md and .svg next to it")


def write(out: Path, result: dict[str, Any], table: str) -> None:
    """Write the result as JSON and as a Markdown table."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**result, "machine": machine()}, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    say(f"written to {out}")


def draw_lines(
    path: Path,
    lines: dict[str, tuple[Sequence[Any], Sequence[float]]],
    *,
    across: str,
    up: str,
    mark: float | None = None,
) -> None:
    """Draw one line per name, and a dotted vertical line at `mark`."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for name, (x, y) in lines.items():
        axes.plot(x, y, marker="o", label=name)
    if mark is not None:
        axes.axvline(mark, color="grey", linestyle=":")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _worker(recipe: str, data: str, beam: int, overrides: Sequence[str]) -> dict[str, Any]:
    from regard import api, loading
    from regard.metrics import METRICS
    from regard.text.bitext import load_bitext
    from regard.training.events import Progress, Validated

    progress: list[Progress] = []
    curve: list[tuple[int, float, float]] = []

    def listen(event: object) -> None:
        if isinstance(event, Progress):
            progress.append(event)
        elif isinstance(event, Validated):
            curve.append((event.step, event.metrics["loss"], event.metrics["bleu"]))

    with tempfile.TemporaryDirectory() as folder:
        run = api.train(recipe, out=Path(folder) / "run", overrides=overrides, data=data, listen=listen).run
        config = run.recipe()
        translator = loading.load(run.path)
        pairs = load_bitext(config.data.valid, folders=[Path(data)])
        inputs, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        outputs = translator.translate(inputs, options=config.decode.replace(beam=beam))
        bleu = METRICS.get("bleu", where="metric").score(outputs, references, inputs, config.evaluate)
    late = progress[len(progress) // 4 :]
    speeds = sorted(one.tokens_per_second for one in late)
    return {
        "loss": curve[-1][1],
        "bleu": bleu.value,
        "signature": bleu.signature,
        "curve": curve,
        "parameters": translator.model.num_parameters(),
        "tokens_per_second": speeds[len(speeds) // 2],
        "tokens_per_step": config.train.tokens,
        "steps": config.train.steps,
        "seconds": progress[-1].seconds,
    }


if __name__ == "__main__":
    print(json.dumps(_worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])))
