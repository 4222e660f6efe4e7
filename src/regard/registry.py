"""Named things that a recipe can choose: models, tokenizers, metrics, tasks; and the plug-ins that add to them.

A plug-in is an installed distribution with an entry point in the group `regard.plugins`. The entry point names a function
without arguments, which calls `register_model`, `register_metric` and so on. Plug-ins are loaded once per process, when a
registry is listed or is asked for a name that it does not hold, and never by `import regard`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from regard.errors import ConfigError, RegardError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "regard.plugins"
T = TypeVar("T")


class Registry(Generic[T]):
    """Entries of one kind by name, in the order in which they were registered."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # for error messages: "model", "metric"
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T, *, replace: bool = False) -> None:
        """Add an entry. Raise ConfigError if the name is taken and `replace` is False."""
        if not replace and name in self._entries:
            raise ConfigError(f"a {self.kind} called {name!r} is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: object, *, where: str) -> T:
        """Return the entry of that name. `where` says in the error what has the value, as in `model.kind`."""
        if not isinstance(name, str) or name not in self._entries:
            load_plugins()
        if not isinstance(name, str) or name not in self._entries:
            broken = "".join(f" ({problem})" for problem in _problems)
            known = did_you_mean(name if isinstance(name, str) else "", self._entries)
            raise ConfigError(f"{where} is {name!r}; {known}{broken}")
        return self._entries[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, those of plug-ins included."""
        load_plugins()
        return tuple(self._entries)


_lock = threading.RLock()  # reentrant: a plug-in may list a registry while it registers
_loaded = False
_problems: list[str] = []


def load_plugins() -> None:
    """Call the entry point of every plug-in, unless this process has done so. One that fails is logged and left out."""
    # Both take a while to import, and most commands need no plug-in.
    import logging
    from importlib.metadata import entry_points

    global _loaded
    with _lock:
        if _loaded:
            return
        _loaded = True
        for entry_point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
            try:
                _call(entry_point)
            except (Exception, SystemExit) as error:
                problem = f"the plug-in {entry_point.name!r} of {_distribution(entry_point)} could not be loaded: "
                _problems.append(problem + _one_line(error))
                logging.getLogger("regard").warning(_problems[-1])


def _call(entry_point: EntryPoint) -> None:
    register = entry_point.load()
    if not callable(register):
        raise ConfigError(f"{entry_point.value!r} is not a function; name one, as in 'my_package:register'")
    register()


def _distribution(entry_point: EntryPoint) -> str:
    return (
        "an unknown distribution" if entry_point.dist is None else f"{entry_point.dist.name} {entry_point.dist.version}"
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RegardError) else f"{type(error).__name__}: {text}"
