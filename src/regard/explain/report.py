"""HTML pages that load nothing else: a trace, and the report of one run or several side by side."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.config import TokenizerConfig, TokenizerSide
from regard.explain.figures import pictures_as_svg
from regard.explain.page_assets import VIEW_MODULES, asset, escape_json, join_modules, make_page
from regard.explain.trace import Trace, has_uniform_attention, moses_pairs
from regard.explain.trace_json import trace_as_json
from regard.run.folder import CARD_PAGE, REPORT, RunFolder
from regard.toml import dump_toml, to_table

HINT = "The redder a word and the thicker its line, the less certain the model was. Choose a word to see alternatives."
UNIFORM_NOTE = (
    "All heads of encoder-decoder attention give all source tokens nearly the same weight: this model has hardly learned to "
    "attend to the source. So there is no alignment."
)
REFRESH_SECONDS = 15
MAX_POINTS = 2000  # of a curve; longer curves are thinned evenly
CURVES = ("loss", "rate", "gradient_norm", "tokens_per_second")
TRANSLATION_LABELS = ("output", "source")  # of attention that was logged without labels
REPORT_MODULES = ("elements.js", "heatmap.js", "chart.js", "curves.js", "tables.js", "checkpoints.js", "report.js")
NOT_SCORES = {"event", "step", "best", "examples", "histograms", "attention", "crc"}


def as_page(trace: Trace, *, products: bool = False) -> str:
    """Return the HTML page of a trace. With `products` it has queries and keys, if they were recorded."""
    pairs = " ".join(f"{source}-{target}" for source, target in moses_pairs(trace))
    values = {
        "model": html.escape(trace.model),
        "source": html.escape(trace.source.text),
        "hint": HINT if any(trace.alternatives) else "",
        "uniform": f'<p class="note">{UNIFORM_NOTE}</p>' if has_uniform_attention(trace) else "",
        "alignment": "" if pairs else "hidden",
        "pairs": pairs,
        "pictures": _pictures(trace),
        "trace": escape_json(json.dumps(trace_as_json(trace, products=products), ensure_ascii=False)),
        "script": bundle(*VIEW_MODULES, "look.js"),
    }
    return make_page("look.html", values, title=trace.source.text[:80], styles=["look.css"], scripts=True)


def _pictures(trace: Trace) -> str:
    """Return the trace's own pictures as a section of the page, or nothing."""
    images = "".join(
        f'<figure><img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
        for name, svg in pictures_as_svg(trace).items()
    )
    return images and f'<section aria-label="Pictures">{images}</section>\n'


def bundle(*names: str) -> str:
    """Return several JavaScript modules of the assets as one script."""
    return join_modules(*map(asset, names))


def write_report(run: RunFolder) -> None:
    """Write the report into the run folder."""
    run.write_extras({REPORT: as_report([run])})


def as_report(runs: Sequence[RunFolder]) -> str:
    """Return the HTML page of the report of these runs. It reloads itself every few seconds while a run is unfinished."""
    two_sided = any(tokenizer.source or tokenizer.target for tokenizer in (run.recipe().tokenizer for run in runs))
    summaries = [summarize(run, two_sided=two_sided) for run in runs]
    training = not all(one["finished"] for one in summaries)
    return make_page(
        "report.html",
        {"runs": escape_json(json.dumps(summaries, ensure_ascii=False)), "script": bundle(*REPORT_MODULES)},
        title=", ".join(one["name"] for one in summaries),
        styles=["look.css", "report.css"],
        scripts=True,
        refresh_seconds=REFRESH_SECONDS if training else None,
    )


def summarize(run: RunFolder, *, two_sided: bool = False) -> dict[str, Any]:
    """Return what the report shows of a run: numbers of its log unchanged, its recipe and its card.

    With `two_sided`, what a tokenizer may set per side is listed per side, as resolved, to be compared with other runs.
    """
    log = run.require().read_log()
    progress = [event for event in log if event["event"] == "progress"]
    started = [event for event in log if event["event"] == "started"]
    validated = [event for event in log if event["event"] == "validated"]
    recipe = run.recipe()
    table = to_table(recipe)
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
        "recipe": dump_toml(table),
        "settings": dict(_flat({**table, "tokenizer": _per_side(recipe.tokenizer)} if two_sided else table)),
        "card": run.read_extra(CARD_PAGE) or "",
    }


def _per_side(tokenizer: TokenizerConfig) -> dict[str, Any]:
    """Return the settings of a tokenizer, those that may differ between the sides only in a table of each side."""
    own = set(TokenizerSide.__struct_fields__)
    one, other = (to_table(tokenizer.side(name)) for name in ("source", "target"))
    shared = {key: value for key, value in one.items() if key not in own}
    source, target = ({key: value for key, value in side.items() if key in own} for side in (one, other))
    return {**shared, "source": source, "target": target}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a recipe under their full names."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _attention(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the attention of an example. Its labels name the query axis and the key axis."""
    found = event.get("attention")
    return None if found is None else {"labels": TRANSLATION_LABELS, **found}


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
