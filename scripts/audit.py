"""Ask the configured package index for known vulnerabilities of every pinned version; fail if there are any.

    .venv/bin/python scripts/audit.py [FILE ...]          requirements/*.txt if none is given

The answers come from the index's JSON API, next to the simple one. An index that has none, or does not answer, is reported
in one line and is no failure: the check is for machines that can reach an index.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from package_index import index_url

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 5
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;+\\]+)")  # without a local part: the index knows no builds

Pin = tuple[str, str]


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "requirements").glob("*.txt"))
    pins = sorted({pin for file in files for pin in pins_of(file.read_text(encoding="utf-8"))})
    base = index_url().removesuffix("/simple")
    reason = problem(base, pins[0])
    if reason:
        print(f"audit: not done, the package index has no answer about vulnerabilities ({reason})")
        return 0
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pin: vulnerabilities(base, pin), pins))
    unknown = [name for (name, _), answer in zip(pins, answers, strict=True) if answer is None]
    found = [(pin, one) for pin, answer in zip(pins, answers, strict=True) for one in answer or []]
    for (name, version), one in found:
        fixed = ", ".join(one.get("fixed_in") or []) or "no version yet"
        print(
            f"{name} {version}: {one.get('id', 'a vulnerability')}, fixed in {fixed}: {one.get('summary') or ''}".strip()
        )
    missing = f", no answer about {', '.join(unknown)}" if unknown else ""
    print(f"audit: {len(pins)} versions, {len(found)} known vulnerabilities{missing}")
    return int(bool(found))


def pins_of(text: str) -> list[Pin]:
    """Names and versions in a file of requirements."""
    return [(found[1], found[2]) for line in text.splitlines() if (found := PIN.match(line))]


def problem(base: str, pin: Pin) -> str | None:
    """Why the index cannot be asked, or None."""
    try:
        return None if "vulnerabilities" in release(base, pin) else "its answers have no such list"
    except (OSError, ValueError) as error:
        return str(error)


def vulnerabilities(base: str, pin: Pin) -> list[dict[str, Any]] | None:
    """What is known about a version and was not withdrawn; None where there is no answer."""
    try:
        return [one for one in release(base, pin).get("vulnerabilities", []) if not one.get("withdrawn")]
    except (OSError, ValueError):
        return None


def release(base: str, pin: Pin) -> dict[str, Any]:
    with urllib.request.urlopen(f"{base}/pypi/{pin[0]}/{pin[1]}/json", timeout=SECONDS) as answer:
        return dict(json.loads(answer.read()))


if __name__ == "__main__":
    sys.exit(main())
