"""What `regard.compare` returns."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from regard.comparing.page import as_page
from regard.comparing.result import Compared
from regard.comparing.text import as_text


@dataclass(frozen=True)
class Comparison(Compared):
    """Systems compared on test sets, as data and for readers. The first system is the baseline."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"baseline": self.baseline, **asdict(self)}

    def as_json(self) -> str:
        """Return everything as one line of JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_text(self) -> str:
        """Return tables, and the sentences that differ most."""
        return as_text(self)

    def as_page(self) -> str:
        """Return an HTML page that loads nothing else."""
        return as_page(self)
