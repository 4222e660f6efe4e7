"""Lines in, translations out: what `regard translate` reads and writes, and how an interrupted one resumes.

With an output file, translations are collected in FILE.part, next to it, until all are there. FILE.part.json says what they
were made with. The same command then continues after the last complete line.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import msgspec

from regard.cli.terminal import print_message, print_warning
from regard.config import SearchOptions
from regard.decoding.requests import Request
from regard.decoding.translation import as_json as translation_as_json
from regard.decoding.translator import READ_AHEAD, Translation, Translator
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.text.arriving_lines import count_file_lines, count_lines, read_blocks
from regard.text.lines import stream_lines
from regard.text.text_report import TextReport

PER_BLOCK = 1024  # lines that are translated before they are written to a file


class JsonRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A line of `--json-input`."""

    text: str
    prefix: str = ""
    phrases: list[str | list[str]] = []
    keep: list[str] = []


def read_request(line: str, number: int) -> Request:
    """Return the request of a line of JSON. `number` is that of the line. A blank one asks for nothing."""
    if not line.strip():
        return Request("")
    try:
        found = msgspec.json.decode(line, type=JsonRequest)
    except msgspec.DecodeError as error:
        example = '{"text": "...", "phrases": ["..."]}'
        raise DataError(f"line {number} is not a request such as {example}: {error}") from error
    return Request(found.text, found.prefix, found.phrases, found.keep)


def as_json(number: int, found: Sequence[Translation], *, nbest: int) -> str:
    """Return the translations of a line as one line of JSON."""
    shown = [translation_as_json(one) for one in found[:nbest]]
    table = {"line": number, **shown[0]} if nbest == 1 else {"line": number, "translations": shown}
    return json.dumps(table, ensure_ascii=False)


@dataclass
class Lines:
    """The lines of an input, and how their translations are written."""

    translator: Translator
    options: SearchOptions
    file: str  # "-" is standard input
    json_input: bool
    as_json: bool
    first: int  # the number of the first line
    warn: Callable[[str], None]

    def translate(self, output: TextIO, *, skip: int = 0) -> None:
        """Translate all lines but the first `skip`, and write one line for each, or a list of Moses for each."""
        number, nbest = self.first + skip, self.options.nbest
        written = asked = False
        unknown = self.translator.unknown_text()
        with self._progress(output, skip) as progress:
            for block in self._blocks(skip, most=READ_AHEAD if output is sys.stdout else PER_BLOCK):
                texts: list[str | Request] = list(block)
                if self.json_input:
                    texts = [read_request(line, place) for place, line in enumerate(block, number)]
                asked = asked or any(line.strip() for line in block)
                if unknown is not None:
                    for place, text in enumerate(texts, number):
                        request = Request(text) if isinstance(text, str) else text
                        unknown.read(self.translator.unprotected(request, protect=self.options.protect), place)
                for found in self.translator.stream(texts, options=self.options, first=number, on_ready=progress):
                    written = written or any(one.text.strip() for one in found)
                    if found[0].lost and not self.as_json:
                        self.warn(f"the translation of line {number} lacks {', '.join(found[0].lost)}")
                    if self.as_json:
                        print(as_json(number, found, nbest=nbest), file=output)
                    else:
                        for one in found[:nbest]:
                            print(
                                one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}", file=output
                            )
                    number += 1
                output.flush()
        if asked and not written:
            print_warning("all translations are empty: the model has not learned enough to output anything")
        if unknown is not None and (sentence := unknown.sentence()):
            self.warn(sentence)

    def _blocks(self, skip: int, *, most: int) -> Iterator[list[str]]:
        """Yield the lines in blocks that are translated together."""
        report = TextReport()
        if self.file == "-":
            yield from read_blocks(sys.stdin.buffer, "standard input", most=most, report=report)  # type: ignore[arg-type]
        else:
            lines = islice(stream_lines(Path(self.file), report), skip, None)
            while block := list(islice(lines, most)):
                yield block
        for sentence in report.sentences():
            print_warning(sentence)

    def _progress(self, output: TextIO, skip: int) -> AbstractContextManager[Callable[[int], None]]:
        """Return what shows the progress. On a terminal translations do, and the end of a pipe is not known."""
        stream: Any = sys.stdin.buffer
        total = None
        if not output.isatty():
            total = count_lines(stream) if self.file == "-" else count_file_lines(Path(self.file))
        if total is None:
            return nullcontext(lambda count: None)
        from regard.cli.display import LineProgress

        return LineProgress(total - skip)


@dataclass
class OutputFile:
    """A file of translations, one line per input line, that an interrupted command can continue."""

    path: Path
    settings: Mapping[str, Any]  # what the translations follow from

    @property
    def part(self) -> Path:
        """The translations so far."""
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def _settings_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part.json")

    def begin(self) -> tuple[TextIO, int]:
        """Return the file to append to, and how many lines it has. Refuse to continue with other settings."""
        if self.path.exists():
            raise ConfigError(f"{self.path} is there already; remove it, or name another file")
        done = 0
        if self.part.exists() and self._settings_file.exists():
            stored = json.loads(self._settings_file.read_text(encoding="utf-8"))
            changed = sorted(name for name in {*stored, *self.settings} if stored.get(name) != self.settings.get(name))
            if changed:
                raise ConfigError(
                    f"{self.part} was begun with other settings ({', '.join(changed)}); give the same ones, or remove it"
                )
            done = self._complete_lines()
            print_message(f"continuing {self.path} after {counted(done, 'line')}")
        else:
            self._settings_file.write_text(json.dumps(self.settings), encoding="utf-8")
            self.part.write_bytes(b"")
        return self.part.open("a", encoding="utf-8"), done

    def _complete_lines(self) -> int:
        """Return the number of complete lines, and remove what follows them."""
        count = end = 0
        with self.part.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    count, end = count + 1, end + len(line)
        os.truncate(self.part, end)
        return count

    def finish(self) -> None:
        """Give the complete translations their name."""
        os.replace(self.part, self.path)
        self._settings_file.unlink()


def file_digest(file: str) -> str:
    """Return the SHA-256 digest of a file, with which a changed input is noticed."""
    with Path(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
