"""The story of a run, or of several beside each other, as one HTML file: curves, examples, attention, cost."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from string import Template
from typing import Any

from regard.explain.page import as_one_script, asset, inside_a_script
from regard.run.folder import CARD_PAGE, REPORT, RunFolder
from regard.toml import dump_toml, to_table

MOST_POINTS = 2000  # of a curve; of more every second, third, ... is kept
CURVES = ("loss", "rate", "gradient_norm", "tokens_per_second")
NOT_SCORES = {"event", "step", "best", "examples", "histograms", "attention", "crc"}


def write_report(run: RunFolder) -> None:
    """Puts the report into the run's folder."""
    run.write_extras({REPORT: as_report([run])})


def as_report(runs: Sequence[RunFolder]) -> str:
    """The file. While a run is not finished it loads itself again every few seconds."""
    stories = [story(run) for run in runs]
    training = not all(one["finished"] for one in stories)
    return Template(asset("report.html")).substitute(
        title=html.escape(", ".join(one["name"] for one in stories)),
        refresh='<meta http-equiv="refresh" content="15">' if training else "",
        style=asset("look.css") + asset("report.css"),
        stories=inside_a_script(json.dumps(stories, ensure_ascii=False)),
        script=as_one_script("attention.js", "report.js"),
    )


def story(run: RunFolder) -> dict[str, Any]:
    """What the log, the recipe and the card say; every number as it stands there."""
    log = run.require().read_log()
    progress = [event for event in log if event["event"] == "progress"]
    started = [event for event in log if event["event"] == "started"]
    validated = [event for event in log if event["event"] == "validated"]
    stride = -(-len(progress) // MOST_POINTS) or 1
    kept = (
        progress[::stride]
        if not progress or progress[-1] in progress[::stride]
        else [*progress[::stride], progress[-1]]
    )
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
                "attention": event.get("attention"),
            }
            for event in validated
        ],
        "notes": [[event["step"], event["text"]] for event in log if event["event"] == "noted"],
        "seconds": progress[-1]["seconds"] if progress else 0.0,
        "step": progress[-1]["step"] if progress else 0,
        "recipe": dump_toml(to_table(run.recipe())),
        "card": run.read_extra(CARD_PAGE) or "",
    }


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
