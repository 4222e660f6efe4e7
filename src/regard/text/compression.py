"""Opening text files, plain or compressed with gzip, xz or zstd, within limits on what they expand to."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from regard.errors import DataError, require

ENDINGS = (".gz", ".xz", ".zst")
MAX_RATIO = 250  # text does not compress better
FREE_BYTES = 2**26  # may be any number of times larger than the file
MAX_MEMORY = 2**28  # bytes for unpacking; a file may ask for more than it needs
_BLOCK = 2**16
# A block of zstd takes at least four bytes and expands to at most 2**17, so this bounds what one call returns.
_ZSTD_INPUT = 256
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


class Damaged(DataError):
    """A compressed file that cannot be unpacked."""

    def __init__(self, name: str, kind: str, problem: object) -> None:
        super().__init__(f"{name} is a damaged {kind} file ({problem}); copy it again")
        self.kind, self.problem = kind, problem


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file that the user named, and unpack it if it is compressed."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    try:
        with path.open("rb") as file:
            yield unpacked(file, str(path))
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; check the path") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the file and its permissions") from error


def unpacked(file: io.BufferedReader, name: str) -> io.BufferedReader:
    """Return the file, or if it is compressed, a stream of its content. `name` is used in error messages."""
    # Detected by content: file names can be wrong, and a pipe cannot be read twice.
    start = file.peek(len(_XZ))
    for magic, kind in ((_GZIP, "gzip"), (_XZ, "xz"), (_ZSTD, "zstd")):
        if start.startswith(magic):
            return io.BufferedReader(_Unpacked(file, name, kind), _BLOCK)
    return file


class _Decompressor(Protocol):
    def read1(self, size: int, /) -> bytes:
        """Return some bytes of the content, none at its end."""


class _Unpacked(io.RawIOBase):
    """The content of a compressed file. Raises `Damaged`, or DataError for content that is too large for its file."""

    def __init__(self, file: io.BufferedReader, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self._input = _Counted(file)
        self._unpacked = 0
        self._errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
        self._stream: _Decompressor
        if kind == "gzip":
            self._stream = gzip.GzipFile(fileobj=self._input)  # type: ignore[call-overload]
        elif kind == "xz":
            self._stream = _Xz(self._input)
        else:
            zstandard = require("zstandard", extra="zstd")
            self._errors = (EOFError, zstandard.ZstdError)
            self._stream = _Zstd(self._input, zstandard)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._stream.read1(len(buffer))
        except self._errors as error:
            raise Damaged(self.name, self.kind, error) from error
        self._unpacked += len(content)
        if self._unpacked > max(FREE_BYTES, MAX_RATIO * self._input.count):
            raise DataError(
                f"{self.name} unpacks to more than {MAX_RATIO} times its size, as text does not; if it is what you want, "
                "unpack it yourself"
            )
        buffer[: len(content)] = content
        return len(content)


class _Counted:
    """A file that counts the bytes which are read from it."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.file, self.count = file, 0

    def read(self, size: int) -> bytes:
        content = self.file.read(size)
        self.count += len(content)
        return content


class _Xz:
    """One xz stream or several, one after the other, with a limit on the memory for unpacking."""

    def __init__(self, file: _Counted) -> None:
        self._file, self._decoder = file, _xz_decoder()

    def read1(self, size: int, /) -> bytes:
        while True:
            given = b""
            if self._decoder.eof:
                # Zero bytes may follow a stream, up to a multiple of four.
                given = (self._decoder.unused_data or self._file.read(_BLOCK)).lstrip(b"\0")
                if not given:
                    return b""
                self._decoder = _xz_decoder()
            elif self._decoder.needs_input and not (given := self._file.read(_BLOCK)):
                raise EOFError("its end is missing")
            if content := self._decoder.decompress(given, size):
                return content


def _xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)


class _Zstd:
    """One zstd frame or several. The package's own reader takes a file without its end for an intact one."""

    def __init__(self, file: _Counted, zstandard: Any) -> None:
        self._file, self._given, self._content = file, b"", io.BytesIO()
        self._new = zstandard.ZstdDecompressor(max_window_size=MAX_MEMORY).decompressobj
        self._decoder: Any = None  # of the frame that has begun

    def read1(self, size: int, /) -> bytes:
        while not (content := self._content.read(size)):
            self._given = self._given or self._file.read(_BLOCK)
            if not self._given and self._decoder is not None:
                raise EOFError("its end is missing")
            if not self._given:
                return b""
            self._decoder = self._decoder or self._new()
            some, self._given = self._given[:_ZSTD_INPUT], self._given[_ZSTD_INPUT:]
            self._content = io.BytesIO(self._decoder.decompress(some))
            if self._decoder.eof:
                self._given, self._decoder = self._decoder.unused_data + self._given, None
        return content
