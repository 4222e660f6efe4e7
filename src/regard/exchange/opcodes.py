"""The values that a PyTorch file describes: plain containers, numbers, texts and tensors, and nothing else.

Such files hold a program for a small stack machine, which in Python can call any function. This interpreter knows only the
instructions that build values, and a fixed table of names. Anything else is refused by its name, and nothing is ever
imported or called on behalf of a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, NoReturn

import torch

from regard.errors import ConfigError

MAX_INSTRUCTIONS = 50_000_000
MAX_DIMENSIONS = 8

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


class Storage(NamedTuple):
    """The numbers that tensors are made of, by the name they have in the file."""

    dtype: torch.dtype
    key: str
    length: int


class StoredTensor(NamedTuple):
    """A tensor that is not read yet: which of a storage's numbers it has."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Options(dict[str, Any]):
    """What was an argparse.Namespace."""


class _Name(NamedTuple):
    """Something that a file names, such as a class."""

    module: str
    name: str


class _Mark:
    """Where a group of values begins on the stack."""


_MARK = _Mark()


def read_value(
    content: bytes, at: int, *, persistent: Callable[[Any], Any], origin: object, encoding: str = "utf-8"
) -> tuple[Any, int]:
    """Return the value that the program at this place describes, and the place behind it.

    `persistent` returns what the value of a persistent id stands for, such as a `Storage`.
    """
    machine = _Machine(content, at, persistent, origin, encoding)
    try:
        return machine.run(), machine.at
    except (IndexError, struct.error, UnicodeDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{origin} is damaged or not a PyTorch file: {type(error).__name__}") from error


def storage_of(value: Any, *, origin: object) -> Storage:
    """Return the storage that a persistent id describes: ('storage', type, key, place, count)."""
    match value:
        case ["storage", _Name(module="torch", name=str(kind)), str(key), str(), int(count), *_] if kind in STORAGES:
            if 0 <= count < 2**48:
                return Storage(STORAGES[kind], key, count)
    raise ConfigError(f"{origin} is damaged: it has a storage that is not one of numbers")


class _Machine:
    """The stack, the remembered values, and one method per instruction."""

    def __init__(
        self, content: bytes, at: int, persistent: Callable[[Any], Any], origin: object, encoding: str
    ) -> None:
        self.content, self.at, self.persistent = content, at, persistent
        self.origin, self.encoding = origin, encoding
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_INSTRUCTIONS):
            code = self._bytes(1)
            if code == b".":
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                self._refuse(f"the instruction {code!r}")
            step(self)
        return self._refuse(f"more than {MAX_INSTRUCTIONS:,} instructions")

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"{self.origin} holds {what[:200]}, which is not read: only tensors, plain containers, numbers and texts are"
        )

    # Bytes

    def _bytes(self, count: int) -> bytes:
        found = self.content[self.at : self.at + count]
        if len(found) != count or count < 0:
            raise IndexError("the file ends early")
        self.at += count
        return found

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self.content.index(b"\n", self.at)
        found = self.content[self.at : end].decode()
        self.at = end + 1
        return found

    # Values

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def text(self, form: str) -> None:
        self.push(self._bytes(self._number(form)).decode("utf-8", "surrogatepass"))

    def old_text(self, form: str) -> None:
        self.push(self._bytes(self._number(form)).decode(self.encoding))

    def long(self) -> None:
        self.push(int.from_bytes(self._bytes(self._number("<B")), "little", signed=True))

    def name(self, module: str, name: str) -> None:
        found = _Name(module, name)
        if found not in _KNOWN and not (module == "torch" and name in STORAGES):
            self._refuse(f"{module}.{name}")
        self.push(found)

    def stack_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.name(str(module), str(name))

    # Groups

    def group(self) -> list[Any]:
        """Return the values above the last mark, and remove them and the mark."""
        start = next((place for place in range(len(self.stack) - 1, -1, -1) if self.stack[place] is _MARK), None)
        if start is None:
            raise IndexError("a group has no beginning")
        values = self.stack[start + 1 :]
        del self.stack[start:]
        return values

    def tuple_of(self, count: int) -> None:
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(values)

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            self._refuse("a list that is none")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            self._refuse("a mapping that is none")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not _is_key(key):
                self._refuse("a key that is neither a text nor a number")
            target[key] = value

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    # What stands for calls

    def call(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, _Name) or name not in _KNOWN or not isinstance(arguments, tuple):
            self._refuse("a call of something that is no function")
        self.push(_KNOWN[name](self, *arguments))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Options) and isinstance(state, dict):
            target.update({str(key): value for key, value in state.items()})
        elif type(target) is not dict:  # attributes of an OrderedDict, such as versions of modules, are not needed
            self._refuse("an object that is neither a mapping nor options")

    def tensor(self, storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> StoredTensor:
        """Return a tensor of a storage, after checking that it lies inside of it."""
        numbers = (offset, *shape, *stride)
        fits = isinstance(storage, Storage) and len(shape) == len(stride) <= MAX_DIMENSIONS
        if not fits or any(type(one) is not int or not 0 <= one < 2**48 for one in numbers):
            self._refuse("a tensor that is none")
        last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if 0 not in shape and last >= storage.length:
            self._refuse("a tensor that reaches beyond its storage")
        return StoredTensor(storage, offset, tuple(shape), tuple(stride))


def _is_key(value: Any) -> bool:
    plain = isinstance(value, str | int | float | bool | None)
    return isinstance(value, Hashable) and (plain or (isinstance(value, tuple) and all(map(_is_key, value))))


def _mapping(machine: _Machine, *arguments: Any) -> dict[Any, Any]:
    """Return an empty mapping, or one of the pairs that it is made of in old files."""
    result: dict[Any, Any] = {}
    machine.stack.append(result)
    if arguments:
        machine.set_items([one for pair in arguments[0] for one in pair])
    machine.stack.pop()
    return result


# What may be named, and what it gives.
_KNOWN: dict[_Name, Callable[..., Any]] = {
    _Name("collections", "OrderedDict"): _mapping,
    _Name("argparse", "Namespace"): lambda machine: Options(),
    _Name("torch._utils", "_rebuild_tensor_v2"): _Machine.tensor,
    _Name("torch._utils", "_rebuild_parameter"): lambda machine, data, *_: data,
    _Name("torch", "Size"): lambda machine, sizes: tuple(sizes),
}

_STEPS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m._bytes(1),  # the version
    b"\x95": lambda m: m._bytes(8),  # the length of a frame
    b"(": lambda m: m.push(_MARK),
    b"0": lambda m: m.stack.pop(),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m._number("<i")),
    b"K": lambda m: m.push(m._number("<B")),
    b"M": lambda m: m.push(m._number("<H")),
    b"\x8a": lambda m: m.long(),
    b"G": lambda m: m.push(m._number(">d")),
    b"X": lambda m: m.text("<I"),
    b"\x8c": lambda m: m.text("<B"),
    b"T": lambda m: m.old_text("<i"),
    b"U": lambda m: m.old_text("<B"),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.group())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"a": lambda m: m.append([m.stack.pop()]),
    b"e": lambda m: m.append(m.group()),
    b"s": lambda m: m.set_item(),
    b"u": lambda m: m.set_items(m.group()),
    b"q": lambda m: m.memo.__setitem__(m._number("<B"), m.stack[-1]),
    b"r": lambda m: m.memo.__setitem__(m._number("<I"), m.stack[-1]),
    b"\x94": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    b"h": lambda m: m.push(m.memo[m._number("<B")]),
    b"j": lambda m: m.push(m.memo[m._number("<I")]),
    b"c": lambda m: m.name(m._line(), m._line()),
    b"\x93": lambda m: m.stack_name(),
    b"Q": lambda m: m.push(m.persistent(m.stack.pop())),
    b"R": lambda m: m.call(),
    b"\x81": lambda m: m.call(),
    b"b": lambda m: m.build(),
}
