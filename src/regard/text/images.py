"""Images as lines of text: data URIs of PNG or JPEG files, and the patches of pixels that a model reads.

PNG files as `png_bytes` writes them are read without other packages; all others with Pillow, from the extra `images`.

Shapes: H height, W width, 3 colours, P pixels of a patch's side, M patches.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, require
from regard.messages import DATA_FOLDER
from regard.text.pair import Pair

Pixels = NDArray[np.uint8]  # [H, W, 3], red, green and blue

MAX_BYTES = 2**20  # of a file
MAX_SIDE = 1024  # pixels; checked before pixels are decoded, so that a small file cannot fill the memory
KINDS = {"data:image/png;base64,": "PNG", "data:image/jpeg;base64,": "JPEG"}
# What Pillow raises for files that are not what they claim to be.
_DAMAGED = (OSError, SyntaxError, ValueError, IndexError, EOFError, struct.error, zlib.error)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = (8, 2, 0, 0, 0)  # bits per colour, red-green-blue, and the only methods of compression, filters and order


def image_uri(pixels: Pixels) -> str:
    """Return an image as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode()


def png_bytes(pixels: Pixels) -> bytes:
    """Return an image as a PNG file: rows without filters."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">II5B", width, height, *_RGB)
    return b"".join(
        [_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)), _chunk(b"IEND", b"")]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read_image(line: str) -> Pixels:
    """Return the pixels of a data URI. Raise DataError for anything else, also for the path of a file."""
    start = line[:32]
    prefix = next((one for one in KINDS if start.lower().startswith(one)), None)
    if prefix is None:
        raise DataError(
            f"{line[:40]!r} is not an image; give one as data:image/png;base64,... or data:image/jpeg;base64,..."
        )
    if len(line) > len(prefix) + MAX_BYTES * 4 // 3 + 4:
        raise DataError(f"an image has more than {MAX_BYTES:,} bytes; make it smaller")
    try:
        content = base64.b64decode(line[len(prefix) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"an image is not in base64 ({error}); encode the file again") from error
    found = _read_plain_png(content)
    return _read_with_pillow(content, KINDS[prefix]) if found is None else found


def _read_plain_png(content: bytes) -> Pixels | None:
    """Return the pixels of a PNG file as `png_bytes` writes it, or None for any other file."""
    if len(content) < 57 or content[:16] != _SIGNATURE + b"\0\0\0\rIHDR" or content[37:41] != b"IDAT":
        return None
    width, height, *kind = struct.unpack(">II5B", content[16:29])
    (size,) = struct.unpack(">I", content[33:37])
    sized = 0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE
    if tuple(kind) != _RGB or not sized or len(content) != 41 + size + 16:
        return None
    expected = height * (1 + 3 * width)
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(content[41 : 41 + size], expected + 1)
    except zlib.error:
        return None
    if len(raw) != expected:
        return None
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(height, 1 + 3 * width)
    # A first byte that is not 0 names a filter.
    return None if rows[:, 0].any() else rows[:, 1:].reshape(height, width, 3)


def _read_with_pillow(content: bytes, kind: str) -> Pixels:
    image_module = require("PIL.Image", extra="images")
    try:
        with image_module.open(io.BytesIO(content), formats=(kind,)) as image:
            if max(image.size) > MAX_SIDE:
                raise DataError(
                    f"an image has {image.width} x {image.height} pixels; at most {MAX_SIDE} x {MAX_SIDE} are read"
                )
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (*_DAMAGED, image_module.DecompressionBombError) as error:
        raise DataError(f"an image is damaged, or no {kind} ({error}); write the file again") from error


# Files


def read_file(path: Path) -> str:
    """Return a PNG or JPEG file as a data URI."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"the image {path} cannot be read ({error.strerror}); check the path") from error
    if len(content) > MAX_BYTES:
        raise DataError(f"the image {path} has more than {MAX_BYTES:,} bytes; make it smaller")
    kind = "png" if content.startswith(_SIGNATURE) else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def with_files(pairs: Sequence[Pair], folders: Sequence[Path]) -> list[Pair]:
    """Return the pairs with data URIs in place of the names of files, which are below one of the folders."""
    return [
        pair if pair.source.lower().startswith("data:") else Pair(read_file(_found(pair.source, folders)), pair.target)
        for pair in pairs
    ]


def _found(name: str, folders: Sequence[Path]) -> Path:
    path = Path(name.strip())
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"the image {name[:200]!r} is not below the data folder; name it as in 'images/1.png'")
    for folder in folders:
        if (folder / path).is_file():
            return folder / path
    where = ", ".join(repr(str(folder)) for folder in folders)
    raise DataError(f"no image {name[:200]!r} in {where}; name the folder that holds it with {DATA_FOLDER}")


# Patches


def patches_of(pixels_HW3: Pixels, side: int) -> Pixels:
    """Return the patches of an image row by row, each as one vector: [M, P * P * 3]."""
    height, width, _ = pixels_HW3.shape
    cut = pixels_HW3.reshape(height // side, side, width // side, side, 3)
    return cut.transpose(0, 2, 1, 3, 4).reshape(-1, 3 * side * side)
