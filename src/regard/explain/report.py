"""The report of one run or several side by side, as one HTML file: curves, examples, attention, cost."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from regard.explain.page import asset, bundle, escape_json
from regard.run.folder import CARD_PAGE, REPORT, RunFolder
from regard.toml import dump_toml, to_table

MAX_POINTS = 2000  # of a curve; longer curves are thinned evenly
CURVES = ("loss", "rate", "gradient_norm", "tokens_per_second")
TRANSLATION_LABELS = ("output", "source")  # of attention that was logged without labels
NOT_SCORES = {"event", "step", "best", "examples", "histograms", "attention", "crc"}


def write_report(run: RunFolder) -> None:
    """Write the report into the run folder."""
    run.write_extras({REPORT: as_report([run])})


def as_report(runs: Sequence[RunFolder]) -> str:
    """Return the content of the HTML file. It reloads itself every few seconds while a run is unfinished."""
    summaries = [summarize(run) for run in runs]
    training = not all(one["finished"] for one in summaries)
    return Template(asset("report.html")).substitute(
        title=html.escape(", ".join(one["name"] for one in summaries)),
        refresh='<meta http-equiv="refresh" content="15">' if training else "",
        style=asset("look.css") + asset("report.css"),
        runs=escape_json(json.dumps(summaries, ensure_ascii=False)),
        script=bundle("attention.js", "report.js"),
    )


def summarize(run: RunFolder) -> dict[str, Any]:
    """Return what the report shows of a run: numbers of its log unchanged, its recipe and its card."""
    log = run.require().read_log()
    progress = [event for event in log if event["event"] == "progress"]
    started = [event for event in log if event["event"] == "started"]
    validated = [event for event in log if event["event"] == "validated"]
    stride = -(-len(progress) // MAX_POINTS) or 1
    kept = progress[::stride]
    if progress and progress[-1] not in kept:
        kept.append(progress[-1])
    return {
        "name": run.path.name,
        "finished": run.finished,
        "started": started[-1] if started else None,
        "curves": {key: [[event["step"], event["seconds"], event[key]] for event in kept] for key in CURVES},
        "validations": [
            {
                "step": event["step"],
                "best": event["best"],
                "scores": {key: value for key, value in event.items() if key not in NOT_SCORES and _is_score(value)},
                "examples": event["examples"],
                "histograms": event.get("histograms"),
                "attention": _attention(event),
            }
            for event in validated
        ],
        "notes": [[event["step"], event["text"]] for event in log if event["event"] == "noted"],
        "seconds": progress[-1]["seconds"] if progress else 0.0,
        "step": progress[-1]["step"] if progress else 0,
        "recipe": dump_toml(to_table(run.recipe())),
        "card": run.read_extra(CARD_PAGE) or "",
    }


def _attention(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the attention of an example. Its labels name the query axis and the key axis."""
    found = event.get("attention")
    return None if found is None else {"labels": TRANSLATION_LABELS, **found}


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
