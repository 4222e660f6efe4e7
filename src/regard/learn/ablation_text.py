"""The result of an ablation as text: both curves, both scores, both outputs, and a table over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from regard.learn.ablation_runs import AblationResult, SeedResult, Side
from regard.learn.ablations import find_ablation
from regard.messages import counted
from regard.metrics.base import label_of

WIDTH, HEIGHT = 60, 12  # of a chart, in characters
MARKS = ("o", "x")  # with, without
LONGEST = 80  # characters of an output
FLOOR = 1e-4  # below it a loss is drawn as this


def as_text(result: AblationResult) -> str:
    """Return the text that `regard ablate` prints."""
    ablation = find_ablation(result.what)
    last = result.seeds[-1]
    lines = [
        f"Take away {ablation.part}: {result.recipe}, {counted(result.steps, 'step')}, {_seeds(result)}, both at once",
        "",
        *_chart(last),
        "",
        *_validations(last, result.metric),
        "",
        *(_over_seeds(result) if len(result.seeds) > 1 else _scores(last, result.metric)),
        *(f"{side.name}: {side.diverged}" for side in _sides(last) if side.diverged),
        "",
        *_examples(last),
    ]
    return "\n".join(lines)


def _seeds(result: AblationResult) -> str:
    numbers = [str(one.seed) for one in result.seeds]
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _sides(one: SeedResult) -> tuple[Side, Side]:
    return one.with_it, one.without_it


def _chart(one: SeedResult) -> list[str]:
    """Return both curves of the training loss, on a logarithmic axis."""
    sides = _sides(one)
    points = [
        [(step, math.log(max(loss, FLOOR))) for step, loss in side.losses if loss is not None and math.isfinite(loss)]
        for side in sides
    ]
    every = [point for line in points for point in line]
    if not every:
        return []
    low, high = min(y for _, y in every), max(y for _, y in every)
    most, span = max(step for step, _ in every), (high - low) or 1.0
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, line in zip(MARKS, points, strict=True):
        for step, y in line:
            row, column = round((high - y) / span * (HEIGHT - 1)), round(step / most * (WIDTH - 1))
            cells[row][column] = mark if cells[row][column] in (" ", mark) else "*"
    names = f"{MARKS[0]} {sides[0].name}, {MARKS[1]} {sides[1].name}, * both"
    labels = {row: f"{math.exp(high - row / (HEIGHT - 1) * span):.3g}" for row in (0, HEIGHT // 2, HEIGHT - 1)}
    drawn = [f"{labels.get(row, ''):>7} |{''.join(cells[row])}".rstrip() for row in range(HEIGHT)]
    axis = f"{'':7} +{'-' * WIDTH}"
    return [f"training loss, nats per token (logarithmic): {names}", *drawn, axis, f"{'step 1':>14}{most:>{WIDTH - 5}}"]


def _validations(one: SeedResult, metric: str) -> list[str]:
    """Return the dev loss and score over training, side by side."""
    metrics = ["loss"] if metric == "loss" else ["loss", metric]
    head = ["dev set, step", *(f"{_label(name)}, {side.name}" for name in metrics for side in _sides(one))]
    rows = [dict(side.dev) for side in _sides(one)]
    body = [
        [str(step), *(number(row.get(step, {}).get(name)) for name in metrics for row in rows)]
        for step in sorted({step for row in rows for step in row})
    ]
    return table([head, *body])


def _label(name: str) -> str:
    """Return what a dev metric is called in a table that says that it is of the dev set."""
    return "loss" if name == "loss" else label_of(name)


def _scores(one: SeedResult, metric: str) -> list[str]:
    sides = _sides(one)
    rows = [["", *(side.name for side in sides)]]
    for name in dict.fromkeys(["loss", metric]):
        rows.append([f"dev {_label(name)} at the end", *(number(side.scores.get(name)) for side in sides)])
    rows.append(["parameters", *(f"{side.parameters:,}" for side in sides)])
    rows.append(["seconds of training", *(number(side.seconds) for side in sides)])
    return table(rows)


def _over_seeds(result: AblationResult) -> list[str]:
    return table(rows_over_seeds(result))


def rows_over_seeds(result: AblationResult) -> list[list[str]]:
    """Return a table of the scores at the end: one row per seed, then their means."""
    names = list(dict.fromkeys(["loss", result.metric]))
    first = result.seeds[0]
    rows = [["seed", *(f"dev {_label(name)}, {side.name}" for name in names for side in _sides(first))]]
    columns = [
        [side.scores.get(name) for one in result.seeds for side in (_sides(one)[at],)]
        for name in names
        for at in (0, 1)
    ]
    rows += [[str(one.seed), *(number(column[at]) for column in columns)] for at, one in enumerate(result.seeds)]
    return [*rows, ["mean", *(number(mean(column)) for column in columns)]]


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if one of the values is not finite."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def number(value: float | None) -> str:
    """Return a number with three digits, or a dash for one that is not finite."""
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _examples(one: SeedResult) -> list[str]:
    """Return lines of the dev set with both outputs."""
    sides = _sides(one)
    wide = max(len(name) for name in ("expected", *(side.name for side in sides)))
    outputs = {side.name: {example.source: example.output for example in side.examples} for side in sides}
    lines = []
    for example in (sides[0].examples or sides[1].examples)[:3]:
        lines += [example.source, f"  {'expected':{wide}}  {example.reference}"]
        for name, found in outputs.items():
            if example.source in found:
                output = found[example.source]
                right = "   (right)" if output == example.reference else ""
                shown = output if len(output) <= LONGEST else f"{output[:LONGEST]} ..."  # some models never end
                lines.append(f"  {name:{wide}}  {shown or '(empty)'}{right}")
    return lines


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns: the first to the left, the others to the right."""
    rows = list(rows)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "   ".join(
            cell.ljust(wide) if at == 0 else cell.rjust(wide)
            for at, (cell, wide) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
