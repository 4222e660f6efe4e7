"""The package index that pip is configured to use: which files it offers of a package, and what a wheel says it needs."""

from __future__ import annotations

import ast
import html.parser
import io
import json
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from functools import cache
from pathlib import Path
from typing import Any

SECONDS = 30
SMALL = 2**20  # bytes of a wheel that is fetched as a whole; of a larger one only the parts that are read
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


@dataclass(frozen=True)
class File:
    """One file of a release."""

    name: str
    url: str
    sha256: str


@cache
def configuration() -> dict[str, list[str]]:
    """Index addresses and folders of wheels, as pip has them from its files and the environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in ("index-url", "find-links"):
            found.setdefault(name, []).extend(ast.literal_eval(value).split())
    return found


def index_url() -> str:
    """The address of the index, without a slash at its end."""
    configured = configuration().get("index-url")
    if configured:
        return configured[-1].rstrip("/")
    default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([sys.executable, "-c", default], capture_output=True, text=True, check=True).stdout.strip()


def local_wheels() -> list[Path]:
    """Wheels in the folders that pip looks into besides the index."""
    folders = {Path(place) for place in configuration().get("find-links", []) if "://" not in place}
    return sorted(path for folder in folders for path in folder.glob("*.whl"))


def files_of(index: str, name: str) -> list[File]:
    """All files of all releases of a package, from the simple API as JSON (PEP 691) or HTML (PEP 503)."""
    url = f"{index}/{name}/"
    request = urllib.request.Request(url, headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        content, kind = answer.read(), answer.headers.get_content_type()
    if kind.endswith("json"):
        entries = [
            (one["filename"], one["url"], one["hashes"].get("sha256", "")) for one in json.loads(content)["files"]
        ]
    else:
        links = _Links()
        links.feed(content.decode())
        entries = [(text, *_without_hash(address)) for text, address in links.found]
    return [File(text, urllib.parse.urljoin(url, address), digest) for text, address, digest in entries]


def requirements_of(wheel: File) -> list[str]:
    """The Requires-Dist lines of a wheel."""
    with zipfile.ZipFile(io.BufferedReader(_RemoteFile(wheel.url), 2**16)) as archive:
        [name] = [one for one in archive.namelist() if one.count("/") == 1 and one.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


def _without_hash(address: str) -> tuple[str, str]:
    url, _, fragment = address.partition("#")
    return url, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""


class _Links(html.parser.HTMLParser):
    """The links of a page, with their text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._address: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._address = dict(attrs).get("href")

    def handle_data(self, data: str) -> None:
        if self._address and data.strip():
            self.found.append((data.strip(), self._address))
            self._address = None


class _RemoteFile(io.RawIOBase):
    """A file on a server, read by ranges."""

    def __init__(self, url: str) -> None:
        self.url, self.position, self.content = url, 0, b""
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=SECONDS) as answer:
            self.size = int(answer.headers["Content-Length"])
        if self.size <= SMALL:
            self.content = self._get(0, self.size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer: Any) -> int:
        begin, end = self.position, min(self.position + len(buffer), self.size)
        if begin >= end:
            return 0
        content = self.content[begin:end] or self._get(begin, end)
        buffer[: len(content)] = content
        self.position += len(content)
        return len(content)

    def _get(self, begin: int, end: int) -> bytes:
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={begin}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            if answer.status != 206 and (begin, end) != (0, self.size):
                raise OSError(f"{self.url}: the server does not answer ranges")
            return bytes(answer.read())
