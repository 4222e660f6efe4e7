"""TOML tables: read from files, converted to typed structs and back, and written."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from regard.config import Struct
from regard.errors import ConfigError, did_you_mean

S = TypeVar("S", bound=Struct)


TYPES = {  # in words of a recipe
    **{"int": "a whole number", "float": "a number", "bool": "true or false"},
    **{"str": "text", "array": "a list", "object": "a table"},
}
ANY_ENTRY = "[...]"  # how msgspec writes the key of an entry of a table


def from_table(cls: type[S], values: Mapping[str, Any], *, where: str, also: Sequence[str] = ()) -> S:
    """Return the struct that the values describe. Raise ConfigError for the first key or value that does not fit.

    `also` are keys that the caller knows, for the error about one that nobody does.
    """
    _refuse_unknown(cls, values, where, also)
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        keys = _keys_of(cls, values, re.findall(r"\[[^\]]*\]|[^.\[]+", path.rstrip("`")), str(error))
        place = ".".join([*filter(None, [where]), *keys]).replace(".[", "[")
        if what.startswith("Invalid enum value"):
            value = what.removeprefix("Invalid enum value ").strip("'")
            raise ConfigError(f"{place} is {value!r}; {did_you_mean(value, _choices(cls, keys))}") from error
        if what.startswith("Object missing required field"):
            raise ConfigError(f"{place or 'the recipe'} has no {what.split('`')[1]!r}, which it needs") from error
        what = _in_words(what)
        # The value says what was given instead.
        shown = f" is {_value_at(values, keys)!r}" if place and what.startswith("expected") else ""
        raise ConfigError(f"{place or 'the recipe'}{shown}: {what}") from error


def _keys_of(cls: type[Struct], values: Mapping[str, Any], path: Sequence[str], problem: str) -> list[str]:
    """Return the keys that lead to a problem, given its path in msgspec's words, where [...] is any entry of a table."""
    keys: list[str] = []
    for part in path:
        entries = _value_at(values, keys)
        if part == ANY_ENTRY and isinstance(entries, Mapping):
            part = next((key for key in entries if _problem(cls, _with_one(values, keys, key)) == problem), part)
        keys.append(part)
    return keys


def _with_one(values: Any, keys: Sequence[str], key: str) -> Any:
    """Return the values with no other entry than this one in the table that the keys lead to."""
    if not keys:
        return {key: values[key]}
    if isinstance(values, Mapping):
        return {**values, keys[0]: _with_one(values[keys[0]], keys[1:], key)}
    return [_with_one(one, keys[1:], key) if f"[{number}]" == keys[0] else one for number, one in enumerate(values)]


def _problem(cls: type[Struct], values: Any) -> str:
    """Return what msgspec says of the values."""
    try:
        msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _in_words(what: str) -> str:
    """Return what msgspec says of a value, in words of a recipe."""
    what = f"{what[:1].lower()}{what[1:]}"

    def types(found: re.Match[str]) -> str:
        names = [name for name in found[1].split(" | ") if name != "null"]
        return " or ".join(TYPES.get(name, f"'{name}'") for name in names) or "nothing"

    if not what.startswith("expected"):
        return what.replace("`", "'")
    return re.sub(r"`([^`]*)`", types, re.sub(r", got `[^`]*`$", "", what))


def with_preset(
    cls: type[S], values: Mapping[str, Any], presets: Mapping[str, Mapping[str, object]], *, where: str
) -> S:
    """Return the struct that a table describes: defaults, then the preset that it names, then its own keys."""
    own = dict(values)
    preset = own.pop("preset", None)
    if preset is not None and (not isinstance(preset, str) or preset not in presets):
        raise ConfigError(f"{where}.preset is {preset!r}; {did_you_mean(str(preset), presets)}")
    return from_table(cls, {**(presets[preset] if preset is not None else {}), **own}, where=where, also=["preset"])


def _value_at(values: Any, keys: Sequence[str]) -> Any:
    """Return the value that keys lead to, such as train, betas and [0]; with unknown ones, what the others do."""
    for part in keys:
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list | tuple) and part.strip("[]").isdigit():
            values = values[int(part.strip("[]"))]
    return values


def _choices(kind: Any, path: Sequence[str]) -> list[str]:
    """Return the values that the field at this path may have."""
    for name in path:
        structs = [option for option in (kind, *get_args(kind)) if isinstance(option, type)]
        fields = {
            field.name: field.type
            for one in structs
            if issubclass(one, msgspec.Struct)
            for field in msgspec.structs.fields(one)
        }
        kind = fields.get(name, kind)
    return [
        str(value) for option in (kind, *get_args(kind)) if get_origin(option) is Literal for value in get_args(option)
    ]


@cache
def _stored_fields(cls: type[Struct]) -> dict[str, Any]:
    """Return the types of the fields that a recipe may have, by name. Evaluating them takes longer than reading a recipe."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(cls) if field.name not in cls.per_call}


def _refuse_unknown(cls: type[Struct], values: Mapping[str, Any], where: str, also: Sequence[str] = ()) -> None:
    fields = _stored_fields(cls)
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"{where or 'the recipe'} has no field {key!r}; {did_you_mean(key, [*fields, *also])}")
        if isinstance(value, Mapping):
            for name, inner in _structs_inside(fields[key], value):
                path = ".".join(part for part in (where, key, name) if part)
                _refuse_unknown(inner, value[name] if name else value, path)
        elif isinstance(value, list | tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, Mapping) and (struct := _struct_of_entries(fields[key])) is not None:
                    _refuse_unknown(struct, entry, ".".join(filter(None, (where, key, str(number)))))


def _structs_inside(kind: Any, value: Mapping[str, Any]) -> list[tuple[str, type[Struct]]]:
    """Return the structs in a value by name: the value itself (name ""), or each entry of a table of structs."""
    for option in (kind, *get_args(kind)):
        if isinstance(option, type) and issubclass(option, Struct):
            if get_origin(kind) is dict:
                return [(name, option) for name, entry in value.items() if isinstance(entry, Mapping)]
            return [("", option)]
    return []


def _struct_of_entries(kind: Any) -> type[Struct] | None:
    """Return the struct that the entries of a list are converted to."""
    lists = [option for option in (kind, *get_args(kind)) if get_origin(option) in (list, tuple)]
    found = [one for option in lists for one in get_args(option) if isinstance(one, type) and issubclass(one, Struct)]
    return found[0] if found else None


def to_table(struct: Struct) -> dict[str, Any]:
    """Return the struct as tables, lists and scalars, without unset fields and those that a recipe does not store."""
    return {
        key: _to_plain(value)
        for name, key in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        if (value := getattr(struct, name)) is not None and name not in struct.per_call
    }


def _to_plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _to_plain(entry) for key, entry in value.items() if entry is not None}
    return [_to_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def flat_table(table: Mapping[str, Any], prefix: str = "", *, lists: bool = True) -> dict[str, Any]:
    """Return nested tables as one table with dotted keys. With `lists`, tables in a list too: they are numbered, from 0."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        inner = {str(number): one for number, one in enumerate(value)} if lists and _are_tables(value) else value
        if isinstance(inner, Mapping):
            leaves |= flat_table(inner, f"{prefix}{key}.", lists=lists)
        else:
            leaves[prefix + key] = value
    return leaves


def _are_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file."""
    try:
        return parse_toml(path.read_bytes(), origin=path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def parse_toml(content: bytes, *, origin: object) -> dict[str, Any]:
    """Return the table of a TOML document. `origin` names it in the error."""
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # huge numbers and deep nesting do not raise TOMLDecodeError
        raise ConfigError(f"{origin} is not valid TOML: {_repeated_key(content, error) or error}") from error


def _repeated_key(content: bytes, error: Exception) -> str | None:
    """Return which key or table is there twice; None if that is not the error, or if its name is on another line."""
    found = re.fullmatch(r"Cannot (overwrite a value|declare .* twice) \(at line (\d+), column \d+\)", str(error))
    if found is None:
        return None
    line = content.decode().split("\n")[int(found[2]) - 1].strip()
    if line.startswith("["):
        return f"line {found[2]} begins the table {line} a second time"
    key, equals, _ = line.partition("=")
    return f"line {found[2]} gives {key.strip()} a second value" if equals else None


def dump_toml(table: Mapping[str, Any], *, prefix: str = "", ordered: Collection[str] = ()) -> str:
    """Return TOML text that parses to the same table.

    The keys of tables with the names `ordered` keep their order: each value is in one line. In others, tables and lists of
    tables follow the other values, since [NAME] and [[NAME]] are possible only there.
    """
    scalars = {key: value for key, value in table.items() if not isinstance(value, Mapping) and not _are_tables(value)}
    lines = [f"{_toml_key(key)} = {inline_toml(value)}" for key, value in scalars.items()]
    for key, value in table.items():
        path = f"{prefix}{_toml_key(key)}"
        if isinstance(value, Mapping) and key in ordered:
            lines += ["", f"[{path}]", *(f"{_toml_key(name)} = {inline_toml(one)}" for name, one in value.items())]
        elif isinstance(value, Mapping):
            lines += ["", f"[{path}]", dump_toml(value, prefix=f"{path}.", ordered=ordered)]
        elif _are_tables(value):
            for one in value:
                lines += ["", f"[[{path}]]", dump_toml(one, prefix=f"{path}.", ordered=ordered)]
    return "\n".join(lines).strip("\n")


def _toml_key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else inline_toml(key)


def inline_toml(value: Any) -> str:
    """Return a value in one line, as it stands behind the = of a key."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(
            "\x7f", "\\u007f"
        )  # JSON does not escape DEL, TOML requires it
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {inline_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(inline_toml(entry) for entry in value) + "]"
    return repr(value)
