"""The files of a result: JSON, tables, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from regard.errors import install_command
from regard.storage.folder import Folder
from regard.study.result.figure import draw_study
from regard.study.result.study_result import StudyResult
from regard.study.result.table_formats import as_latex, as_markdown, as_text

RESULT, FIGURE = "study.json", "figure"
Tables = dict[str, Callable[[StudyResult], str]]
TABLES: Tables = {"table.md": as_markdown, "table.tex": as_latex, "table.txt": as_text}


def result_json(result: StudyResult) -> bytes:
    """Return the result as JSON for people: indented, in a fixed order."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def result_files(result: StudyResult, warn: Callable[[str], None]) -> dict[str, bytes]:
    """Return the files of a result: JSON, tables, and the figure if matplotlib is installed."""
    files = {RESULT: result_json(result)} | {name: make(result).encode() for name, make in TABLES.items()}
    if find_spec("matplotlib") is None:
        warn(f"there is no figure, because matplotlib is not installed: {install_command('plots')}")
        return files
    return files | {f"{FIGURE}.{kind}": content for kind, content in draw_study(result, warn=warn).items()}


def save_result(folder: Path | str, files: Mapping[str, bytes]) -> None:
    """Write the files of a result into a folder."""
    place = Folder(folder).make()
    for name, content in files.items():
        place.save_bytes(name, content)
