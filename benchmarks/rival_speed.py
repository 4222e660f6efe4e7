"""Measure the speed of the rows of studies, one at a time: milliseconds per training step, tokens per second of decoding.

python benchmarks/rival_speed.py studies/rivals.toml studies/parallel.toml --runs runs/rivals --data ~/data \
    --out benchmarks/results/rival-speed-h200.json

Run nothing else on the machine meanwhile. The runs are those of `regard study run --out runs/rivals`, of the first seed.
Each row has its own process, which leaves no memory and no CUDA graphs to the next one. The same call adds missing rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import regard
import report
from harness import say
from regard.decoding.translator import Translator
from regard.errors import ConfigError, RegardError, did_you_mean
from regard.loading import load_translator
from regard.recipe_files import recipe_folder
from regard.study.cells import RUN, Cell, read_record, recipe_of_cell
from regard.study.choices import by_key, choose_candidate, read_records
from regard.study.records import CellRecord
from regard.study.study_file import Study, overrides_of, read_study
from regard.text.bitext import data_folders, load_bitext
from regard.training.events import Event, Progress

STEPS = 400  # of training; the second half is timed
SHORT = [f"train.{name}={STEPS}" for name in ("steps", "validate_every", "checkpoint_every")]
SHORT += ["train.validate_pairs=1", "train.log_every=20"]
SIZES = {1: 32, 64: 512}  # sentences per call: sentences in all


def record_of(study: Study, cell: Cell, runs: Path) -> CellRecord:
    """Return the record of a cell. Raise ConfigError unless it has been trained."""
    record = read_record(study, cell, runs)
    if record is None or record.state != "finished":
        raise ConfigError(f"{cell.folder(runs)} has no finished run; train it with: regard study run")
    return record


# In the process of a row


def measure(study: Study, cell: Cell, runs: Path, data: Path, scratch: Path) -> dict[str, Any]:
    """Return the line of a row."""
    run, record = (cell.folder(runs) / RUN).path, record_of(study, cell, runs)
    milliseconds = milliseconds_per_step(study, cell, run, data, scratch)
    to_30 = next((one.step for one in record.dev if (one.scores.get("bleu") or 0.0) >= 30.0), None)
    return {
        "row": cell.row,
        "parameters": record.parameters,
        "steps": record.steps,
        "milliseconds_per_step": round(milliseconds, 3),
        "seconds": round(record.steps * milliseconds / 1000, 1),
        "steps_to_30": to_30,
        "seconds_to_30": None if to_30 is None else round(to_30 * milliseconds / 1000, 1),
        "speed": decoding_speed(study, cell, run, data),
    }


def milliseconds_per_step(study: Study, cell: Cell, run: Path, data: Path, scratch: Path) -> float:
    """Train for some steps, from the weights of the run so that its tokenizer is used, and return the time per step."""
    times: list[tuple[int, float]] = []

    def listen(event: Event) -> None:
        if isinstance(event, Progress):
            times.append((event.step, event.seconds))

    begin = f"train.init={json.dumps(str(run.resolve()))}"
    overrides = [*overrides_of(study, cell.row, cell.candidate, cell.seed), *SHORT, begin]
    out, recipe = scratch / "run", study.recipe_name(cell.row)
    regard.train(recipe, out=out, overrides=overrides, data=data, listen=listen, warn=lambda text: None)
    (first, before), (last, after) = times[len(times) // 2], times[-1]
    return 1000 * (after - before) / (last - first)


def decoding_speed(study: Study, cell: Cell, run: Path, data: Path) -> dict[str, float]:
    """Return target tokens per second on the first test set, with greedy search and with the beam of the recipe."""
    table = recipe_of_cell(study, cell).data
    if not table.test:
        raise ConfigError(f"the recipe of the row {cell.row!r} has no test set; name one in data.test")
    folders = data_folders(data, recipe_folder(study.recipe_name(cell.row)))
    sources = [pair.source for pair in load_bitext(next(iter(table.test.values())), folders=folders, data=table)]
    translator = load_translator(run, "this benchmark", warn=lambda text: None)
    return {
        f"batch {size}, beam {beam}": tokens_per_second(translator, sources[:count], size, beam)
        for size, count in SIZES.items()
        for beam in sorted({1, translator.options.beam})
    }


def tokens_per_second(translator: Translator, sources: list[str], size: int, beam: int) -> float:
    """Return target tokens per second with `size` sentences per call."""
    options = translator.options.replace(beam=beam)
    groups = [sources[at : at + size] for at in range(0, len(sources), size)]
    # The first round is not timed: search records a CUDA graph for every new size.
    for _ in range(2):
        began = time.perf_counter()
        outputs = [text for group in groups for text in translator.translate(group, options=options)]
        seconds = time.perf_counter() - began
    return round(sum(len(ids) + 1 for ids in translator.tokenizers.target.encode_all(outputs)) / seconds, 1)


# In the parent


def measure_alone(row: str, seconds: float) -> dict[str, Any]:
    """Return the line of a row, which this command measures in a new process. Raise TimeoutExpired after these seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, *sys.argv, "--alone", row, scratch]
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(seconds, 1e6))
    if done.returncode:
        raise SystemExit(f"{row} failed: {done.stderr.strip()[-2000:]}")
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def as_table(lines: list[dict[str, Any]]) -> str:
    rows = ["| | parameters | steps | ms per step | training, s | to 30 BLEU, s | tokens/s, 1 sentence | 64 |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for line in lines:
        to_30 = "" if line["seconds_to_30"] is None else f"{line['seconds_to_30']:.0f}"
        single, many = (
            " / ".join(f"{speed:,.0f}" for key, speed in line["speed"].items() if key.startswith(f"batch {size},"))
            for size in SIZES
        )
        rows.append(
            f"| {line['row']} | {line['parameters'] / 1e6:.1f} M | {line['steps']:,} | {line['milliseconds_per_step']:.2f} "
            f"| {line['seconds']:.0f} | {to_30} | {single} | {many} |"
        )
    return "\n".join([*rows, "", "Where there are two speeds: greedy, and with the beam of the recipe.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("studies", type=Path, nargs="+", help="study files; of rows of the same name the first counts")
    parser.add_argument("--runs", type=Path, required=True, help="folder that the studies were trained into")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="only these rows")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)  # the row of this process, and a folder to use
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds
    rows: dict[str, tuple[Study, Cell]] = {}
    for study in map(read_study, arguments.studies):
        records = by_key(read_records(study, arguments.runs))
        for name in study.row_names:
            chosen = choose_candidate(study, name, records)
            if chosen is None:
                raise ConfigError(f"no candidate of the row {name!r} is chosen yet; train them with: regard study run")
            rows.setdefault(name, (study, Cell(name, chosen, study.seeds[0])))
    if arguments.alone:
        row, scratch = arguments.alone
        print(json.dumps(measure(*rows[row], arguments.runs, arguments.data, Path(scratch))))
        return
    kept = json.loads(arguments.out.read_text(encoding="utf-8"))["lines"] if arguments.out.exists() else []
    lines = {line["row"]: line for line in kept}
    missing = [name for name in arguments.only or rows if name not in lines]
    for name in missing:
        if name not in rows:
            raise ConfigError(f"no row is called {name!r}; {did_you_mean(name, rows)}")
        record_of(*rows[name], arguments.runs)
    for name in missing:
        try:
            lines[name] = measure_alone(name, ends - time.monotonic())
        except subprocess.TimeoutExpired:
            left_out = [name for name in missing if name not in lines]
            raise SystemExit(f"out of time; the same call measures the rest: {'; '.join(left_out)}") from None
        say(
            f"{name}: {lines[name]['milliseconds_per_step']:.2f} ms per step; tokens per second: {lines[name]['speed']}"
        )
        found = [lines[row] for row in dict.fromkeys([*rows, *lines]) if row in lines]
        report.write(arguments.out, {"study": "rival-speed", "lines": found}, as_table(found))


if __name__ == "__main__":
    try:
        main()
    except RegardError as error:
        raise SystemExit(str(error)) from None
