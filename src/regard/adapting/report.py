"""An adaptation as JSON, as a page of Markdown, and as a table for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from regard.adapting.choosing import Point
from regard.adapting.comparing import SetComparison
from regard.adapting.scoring import METRIC, DevScores
from regard.adapting.verdict import Verdict
from regard.comparing.sentences import ChangedSentence
from regard.messages import counted
from regard.metrics.significance import describe_p
from regard.run.folder import RunFolder

MOST_TRIED = 40  # rows in the page


@dataclass(frozen=True)
class Adaptation:
    """An adapted run, and what it gained and lost."""

    run: RunFolder  # the folder of the adapted model, also if it is not accepted
    verdict: Verdict
    domain: SetComparison
    general: SetComparison | None
    base: str
    weights: str  # hash of those of the base
    command: str
    text: Mapping[str, int]  # pairs in each part, and those left out
    replay: Mapping[str, Any]
    chosen: Point
    tried: Sequence[Point]
    base_scores: DevScores
    seed: int

    @property
    def accepted(self) -> bool:
        """Whether the model is in the folder that was asked for."""
        return self.verdict.accepted

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "run": self.run.path.name,
            "accepted": self.accepted,
            "verdict": self.verdict.text,
            "base": self.base,
            "base_weights": self.weights,
            "command": self.command,
            "text": dict(self.text),
            "replay": dict(self.replay),
            "seed": self.seed,
            "test": asdict(self.domain),
            "general": None if self.general is None else asdict(self.general),
            "dev_metric": METRIC,
            "dev_base": asdict(self.base_scores),
            "chosen": msgspec.to_builtins(self.chosen),
            "tried": [msgspec.to_builtins(one) for one in self.tried],
        }

    def as_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=1) + "\n"

    def as_markdown(self) -> str:
        """Return the page in the run folder."""
        text = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in self.text.items())
        facts = {
            "base": f"{self.base}, weights `{self.weights[:16]}`",
            "pairs": text,
            "replay": ", ".join(f"{name} {value}" for name, value in self.replay.items()),
            "chosen": _describe_point(self.chosen),
            "command": f"`{self.command}`",
        }
        lines = [f"# {self.run.path.name}: {self.base}, adapted", "", self.verdict.text, ""]
        lines += _table(["test set", "pairs", "score", "before", "after", "change", "p"], self._rows())
        lines += ["", "p is by approximate randomization, as in sacreBLEU.", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
        for title, changed in self._changed():
            lines += ["", f"## {title}", ""]
            rows = [
                [one.source or "", one.references[0], one.before, one.after, f"{one.change:+.1f}"] for one in changed
            ]
            lines += _table(["source", "reference", "before", "after", "chrF"], rows)
        lines += ["", "## Tried", ""]
        rows = [
            [one.name, f"{one.domain:.2f}", "" if one.general is None else f"{one.general:.2f}"]
            for one in self.tried[:MOST_TRIED]
        ]
        base = self.base_scores
        rows.insert(0, ["base", f"{base.domain:.2f}", "" if base.general is None else f"{base.general:.2f}"])
        lines += _table(["model", f"dev {METRIC}", f"general dev {METRIC}"], rows)
        return "\n".join([*lines, ""])

    def as_text(self) -> str:
        """Return the table, the sentences that changed most, and the verdict, for a terminal."""
        rows = [["", "pairs", "score", "before", "after", "change", "p"], *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if column in (0, 2) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        for title, changed in self._changed():
            lines += ["", title]
            for one in changed:
                lines += [
                    f"  {one.source}",
                    f"    before  {one.before}",
                    f"    after   {one.after}  ({one.change:+.1f})",
                ]
        return "\n".join([*lines, "", self.verdict.text])

    def _rows(self) -> list[list[str]]:
        found = []
        for name, tested in (("new text", self.domain), ("general text", self.general)):
            for one in tested.scores if tested is not None else ():
                assert tested is not None
                numbers = [f"{one.before:.2f}", f"{one.after:.2f}", f"{one.change:+.2f}"]
                p = describe_p(one.p).removeprefix("p = ")
                found.append([name, f"{tested.num_pairs:,}", one.metric, *numbers, p])
        return found

    def _changed(self) -> list[tuple[str, list[ChangedSentence]]]:
        found = [("Most improved, new text", self.domain.improved), ("Most worsened, new text", self.domain.worsened)]
        if self.general is not None:
            found.append(("Most worsened, general text", self.general.worsened))
        return [(title, changed) for title, changed in found if changed]


def _describe_point(point: Point) -> str:
    mean = "" if point.share == 1 else f", {point.share:.0%} of the way from the base to it"
    return f"{point.candidate}, {counted(point.steps, 'step')}{mean}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(map(_cell, row))} |" for row in rows]


def _cell(text: str) -> str:
    """Return text that stays within one cell of a Markdown table."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).replace("|", "\\|")
