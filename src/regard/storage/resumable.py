"""A folder that one command fills once, and that the same command resumes after an interruption.

The settings file is written first: a later command resumes the folder only if its settings are equal. Parts are written
atomically, so a part that exists is intact and is not computed again. The file that marks the folder as complete is
written last. Stores of ids (`preprocess`), distilled corpora (`distilling`) and sharded translations (`cluster.output`) are
such folders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, ConfigError
from regard.storage.directory import LOCK
from regard.storage.folder import Folder, is_temporary
from regard.storage.manifest import sweep

MAX_SHOWN = 60  # characters of a changed setting in an error message


class ResumableFolder(Folder):
    """A folder with a settings file. `early` names entries that may be written before it."""

    def __init__(self, path: Path | str, *, settings: str, early: Collection[str] = ()) -> None:
        super().__init__(path)
        self.settings_file, self.early = settings, early

    @contextmanager
    def opened(self) -> Iterator[dict[str, Any] | None]:
        """Lock the folder, delete temporary files, and yield the stored settings; None if the folder is new."""
        self.refuse_foreign()
        with self.locked(busy=f"another process is writing {self}; wait for it, or choose another folder"):
            sweep(self)
            yield self.stored_settings()

    def refuse_foreign(self) -> None:
        """Raise ConfigError unless the folder is missing, empty, or has a settings file."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self} exists and is not a folder; choose another folder")
        if not self.has_file(self.settings_file) and any(map(self._is_foreign, self.names())):
            raise ConfigError(
                f"{self} has files but no {self.settings_file}, so it was not made by this command; "
                "choose another folder"
            )

    def _is_foreign(self, name: str) -> bool:
        return name != LOCK and not is_temporary(name) and name not in self.early

    def stored_settings(self) -> dict[str, Any] | None:
        """Return the content of the settings file; None if there is none yet."""
        if not self.has_file(self.settings_file):
            return None
        stored = self.load_json(self.settings_file)
        if not isinstance(stored, dict):
            raise CheckpointError(f"{self.path / self.settings_file} is damaged; choose another folder")
        return stored

    def refuse_changes(self, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
        """Raise ConfigError that names the settings that differ, if any do."""
        names = [name for name in {**stored, **current} if stored.get(name) != current.get(name)]
        if names:
            changes = "; ".join(_change(name, stored.get(name), current.get(name)) for name in names)
            raise ConfigError(
                f"{self} was started with other settings ({changes}); "
                "repeat the command with the original settings, or choose another folder"
            )


def _change(name: str, stored: Any, current: Any) -> str:
    """Return "name: old -> new", or only the name if a value is long or has a structure."""
    values = [stored, current]
    scalar = all(value is None or isinstance(value, int | float | str) for value in values)
    shown = " -> ".join(map(str, values)) if scalar else ""
    return f"{name}: {shown}" if 0 < len(shown) <= MAX_SHOWN else name
