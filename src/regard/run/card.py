"""The card of a run as JSON and Markdown: model, data, training time and scores."""

from __future__ import annotations

import json
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Recipe
from regard.messages import counted
from regard.recipe_files import load_recipe, shipped_recipes
from regard.run.folder import CARD_JSON, CARD_PAGE, INIT, NEW, ORIGIN, RunFolder
from regard.text.bitext import without_folders
from regard.toml import dump_toml, flat_table, to_table

if TYPE_CHECKING:
    from regard.run.checkpoint import Checkpoint

# Parts of corpus.json that count what reading the text left out or mended, and what the card calls them.
_COUNTS = {
    "left_out": "left out of the text",
    "mended": "noted in the text",
    "store_left_out": "left out of the store",
    "store_mended": "noted in the text of the store",
}
LABELS = {INIT: "began with", ORIGIN: "imported from"}  # other parts that are no data


def make_card(
    run: RunFolder, checkpoint: Checkpoint, name: str, results: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return everything known of a run whose weights are `checkpoint`, called `name`.

    `results` are its evaluations: name, number and hash of the pairs, scores with signatures, search.
    """
    recipe, log = without_folders(run.recipe()), run.read_log()
    progress = [event for event in log if event["event"] == "progress"]
    started = [event for event in log if event["event"] == "started"]
    speeds = [event["tokens_per_second"] for event in progress if event["tokens_per_second"] is not None]
    return {
        "name": recipe.name,
        "weights": name,
        "parameters": sum(tensor.numel() for tensor in checkpoint.weights.values()),
        "steps": checkpoint.counters.get("step", 0),
        "seed": recipe.train.seed,
        "training_seconds": round(checkpoint.counters.get("seconds", 0.0), 1),
        "target_tokens_per_second": round(statistics.median(speeds)) if speeds else None,
        "machine": started[-1].get("machine", {}) if started else {},
        "how": started[-1].get("how", "") if started else "",
        "corpus": run.corpus(),
        "license": recipe.data.license,
        "attribution": recipe.data.attribution,
        "command": str(run.adaptation().get("command") or _command(recipe, log, run.corpus())),
        **({"adapted": str(run.adaptation().get("verdict"))} if run.adaptation() else {}),
        "results": list(results),
        "notes": list(notes),
        "recipe": to_table(recipe),
    }


def _command(recipe: Recipe, log: Sequence[Mapping[str, Any]], corpus: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the command that repeats the training or the import, without folders of this machine."""
    if ORIGIN in corpus:
        return shlex.join(["regard", "import", str(corpus[ORIGIN].get("folder", "FOLDER"))])
    given = [event for event in log if event["event"] == "command"]
    if given:
        name, overrides, out = given[-1]["recipe"], given[-1]["overrides"], given[-1].get("out")
        folder = [] if out is None else ["--out", _without_parents(out)]
        return shlex.join(["regard", "train", _without_parents(name), *map(_without_folders, overrides), *folder])
    # A run of version 0.1, or of a recipe made in Python: a shipped recipe with overrides, or the one in the run folder.
    if recipe.name not in shipped_recipes():
        return "regard train recipe.toml"
    shipped, own = flat_table(to_table(load_recipe(recipe.name, []))), flat_table(to_table(recipe))
    changes = [f"{key}={value}" for key, value in own.items() if key.startswith("train.") and shipped.get(key) != value]
    return shlex.join(["regard", "train", recipe.name, *changes])


def _without_parents(path: str) -> str:
    """Return a relative path as it is, and the last name of an absolute one."""
    return Path(path).name if Path(path).is_absolute() else path


def _without_folders(override: str) -> str:
    """Return an override with the file names of its absolute paths, whether they are quoted or the entire value."""
    return re.sub(r"""([="'])/(?:[^"'/]*/)*""", r"\1", override)


def write_card(run: RunFolder, card: dict[str, Any]) -> None:
    """Write card.json and card.md into the run folder."""
    as_json = json.dumps(card, ensure_ascii=False, indent=1) + "\n"
    run.write_extras({CARD_JSON: as_json, CARD_PAGE: as_markdown(card)})


def as_markdown(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    machine, corpus = card["machine"], card["corpus"]
    speed = card["target_tokens_per_second"]
    facts = [
        ("weights", f"{card['weights']}, {card['parameters']:,} parameters"),
        ("training", f"{_steps(card)}, seed {card['seed']}, {card['training_seconds']:,.0f} s"),
        ("speed", f"{speed:,} target tokens per second" if speed else "unknown"),
        ("hardware", ", ".join(part for part in (machine.get("device"), card["how"]) if part) or "unknown"),
        ("versions", ", ".join(f"{name} {machine[name]}" for name in ("regard", "torch", "python") if name in machine)),
        *((LABELS.get(name, f"{name} data"), _describe(part)) for name, part in corpus.items() if name not in _COUNTS),
        *((_COUNTS[name], _counts(part)) for name, part in corpus.items() if name in _COUNTS),
        *((f"test set {one['name']}", _describe(_fingerprint(one))) for one in card["results"]),
        ("adapted", card.get("adapted", "")),
        ("license", " ".join(part for part in (card["license"], card["attribution"]) if part)),
        ("command", f"`{card['command']}`"),
    ]
    lines = [f"# {card['name']}", "", "| | |", "|---|---|"]
    lines += [f"| {_table_cell(name)} | {_table_cell(value)} |" for name, value in facts if value]
    if card["results"]:
        lines += ["", "## Results", "", "| test set | pairs | search | score | signature |", "|---|---:|---|---|---|"]
        for result in card["results"]:
            for score in result["scores"]:
                shown = f"{score['name']} {score['value']:.2f}"
                search, signature = result["search"], _table_cell(score["signature"])
                name = _table_cell(result["name"])
                lines.append(f"| {name} | {result['num_pairs']:,} | {search} | {shown} | `{signature}` |")
    if card["notes"]:
        lines += ["", "## Notes", "", *(f"- {_table_cell(note)}" for note in card["notes"])]
    lines += ["", "## Recipe", "", "```toml", dump_toml(card["recipe"]), "```", ""]
    return "\n".join(lines)


def _steps(card: Mapping[str, Any]) -> str:
    """Return the number of steps, and that more are to come if the weights are those of a checkpoint."""
    steps, total = card["steps"], card["recipe"]["train"]["steps"]
    return counted(steps, "step") if card["weights"] == "final" else f"step {steps:,} of {total:,}, unfinished"


def _table_cell(text: str) -> str:
    """Return untrusted text so that it stays within one cell of a Markdown table."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).replace("|", "\\|")


def _fingerprint(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"pairs": result["num_pairs"], "sha256": result["sha256"]}


def _counts(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} ({value:,})" for name, value in part.items())


def _describe(part: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} `{value}`"
        for name, value in part.items()
        if name != NEW
    )
