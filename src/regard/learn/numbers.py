"""Numbers of chapters: `{{name}}` in the text stands for a number of pages/numbers.toml, read from a result of ours."""

from __future__ import annotations

import json
import re
import tomllib
from difflib import get_close_matches
from functools import cache
from typing import Any

from regard.errors import ConfigError
from regard.learn.sources import PAGES, read

PLACE = re.compile(r"\{\{([\w-]+)\}\}")
RESULTS = "benchmarks/results"


def with_numbers(text: str, name: str) -> str:
    """Return a chapter with its numbers in place. ConfigError names an unknown one."""

    def number(found: re.Match[str]) -> str:
        if found[1] not in definitions():
            near = get_close_matches(found[1], definitions(), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{name} uses the number {found[1]}, which pages/numbers.toml does not define{hint}")
        return number_text(definitions()[found[1]], found[1])

    return PLACE.sub(number, text)


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """Return how each number is read: its file, its place there, and its format."""
    return tomllib.loads((PAGES / "numbers.toml").read_text(encoding="utf-8"))


def number_text(definition: dict[str, Any], name: str) -> str:
    """Return a number as the text shows it."""
    reader = next(function for key, function in READERS.items() if key in definition)
    value = reader(definition, name)
    if "minus" in definition:
        place = "row" if "study" in definition else "at"
        value -= reader({**definition, place: definition["minus"]}, name)
    return format(value * definition.get("times", 1), definition["format"])


def result(file: str) -> Any:
    """Return a JSON file of the results."""
    return json.loads(read(f"{RESULTS}/{file}"))


def study_result(study: str) -> Any:
    """Return the numbers of a study."""
    return json.loads(read(f"studies/{study}/study.json"))


def scores_by_length(study: str) -> dict[str, dict[str, float]]:
    """Return the tested score of each row on the first test set of a study, by tokens of the reference, such as 5-9."""
    found = study_result(study)
    groups = found["by_length"].get(found["tests"][0], [])
    return {
        "-".join(dict.fromkeys((str(group["shortest"]), str(group["longest"])))): group["scores"] for group in groups
    }


def _of_json(definition: dict[str, Any], name: str) -> float:
    """Follow a path: a key, or a table whose entries one element of a list has."""
    found = result(definition["file"])
    for step in definition["at"]:
        if isinstance(step, dict):
            fitting = [one for one in found if all(one[key] == value for key, value in step.items())]
            if len(fitting) != 1:
                raise ConfigError(f"{definition['file']} has {len(fitting)} elements with {step} for the number {name}")
            found = fitting[0]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            raise ConfigError(f"{definition['file']} has no {step} for the number {name}")
    return float(found)


def _of_study(definition: dict[str, Any], name: str) -> float:
    """Read a score of a row on the first test set of a study: the mean, or that of references of some lengths."""
    study, row, score = definition["study"], definition["row"], definition["score"]
    if "length" in definition:
        return _of_length(study, row, score, definition["length"], name)
    found = [one for one in study_result(study)["rows"] if one["name"] == row]
    if not found or score not in found[0]["sets"][0]["scores"]:
        raise ConfigError(f"the study {study} has no {score} of {row} for the number {name}")
    return float(found[0]["sets"][0]["scores"][score]["mean"])


def _of_length(study: str, row: str, score: str, length: str, name: str) -> float:
    groups, metric = scores_by_length(study), study_result(study)["metric"]
    if score != metric or row not in groups.get(length, {}):
        raise ConfigError(
            f"the study {study} has no {score} of {row} by the length {length} for the number {name}; "
            f"it has {metric} by the lengths {', '.join(groups)}"
        )
    return float(groups[length][row])


def _of_card(definition: dict[str, Any], name: str) -> float:
    """Read a score of a test set from a card."""
    text = read(f"{RESULTS}/cards/{definition['card']}.md")
    row = re.search(rf"^\| {re.escape(definition['test'])} \|.*\| {definition['score']} ([\d.]+) \|", text, flags=re.M)
    if row is None:
        raise ConfigError(
            f"the card {definition['card']} has no {definition['score']} of {definition['test']} for the number {name}"
        )
    return float(row[1])


def _of_page(definition: dict[str, Any], name: str) -> float:
    """Read the number behind a text of a page that no other file has."""
    found = re.search(re.escape(definition["after"]) + r"([\d.]+)", read(definition["page"]))
    if found is None:
        raise ConfigError(f"{definition['page']} has no number after {definition['after']!r} for the number {name}")
    return float(found[1])


READERS = {"file": _of_json, "study": _of_study, "card": _of_card, "page": _of_page}
