"""The sandbox of a worker: a folder under test, and files next to it that must be neither read nor changed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from regard.run.log import log_line
from tests.fuzz import seal
from tests.fuzz.bases import RUN_NAME, Base
from tests.fuzz.odd_values import TEMPORARY_NAMES

SECRET = "CANARY-7f3a9c5e21"
LARGEST_READ = 20_000_000


def _with_secret(name: str, content: bytes) -> bytes:
    """Return the content of a valid file with the secret added."""
    if name.endswith("log.jsonl"):
        return content + log_line({"event": "noted", "step": 1, "text": SECRET}).encode()
    if name.endswith(("card.json", "corpus.json")):
        return json.dumps({**json.loads(content), "secret": SECRET, "license": SECRET}).encode()
    if name.endswith("recipe.toml"):
        return content.replace(b'"CC0"', f'"{SECRET}"'.encode())
    if name.endswith((".md", ".txt", ".part", ".html")):
        return content + f"{SECRET}\n".encode()
    return content


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino


class Sandbox:
    """The folder `run` under test, the folder `out` for results, and files outside both."""

    def __init__(self, root: Path, bases: dict[str, Base], *, isolated: bool) -> None:
        self.root, self.isolated = root, isolated
        self.outside, self.work, self.temporary = root / "outside", root / "work", root / "tmp"
        self.run, self.out = self.work / RUN_NAME, self.work / "out"
        self.bases = bases
        for folder in (self.outside, self.work, self.temporary):
            folder.mkdir()
        self.watched: dict[str, dict[str, tuple[int, ...]]] = {}
        for name in bases:
            self._make_outside(name)

    def _make_outside(self, name: str) -> None:
        base, folder = self.bases[name], self.outside / name
        base.write(folder)
        for file, content in base.files.items():
            (folder / file).write_bytes(_with_secret(file, content))
        for path in folder.glob("**/manifest.json"):
            seal.seal_manifest(path.parent)
        hard = folder / "hard"
        hard.mkdir()
        for file, content in base.files.items():
            (hard / Path(file).name).write_bytes(content)
        for file in TEMPORARY_NAMES:
            path = hard / Path(file).name
            if not path.exists():
                path.write_text("hard\n")
        (folder / "folder").mkdir()
        for path in (folder / "canary.txt", folder / "folder" / "canary.txt", self.outside / "canary.txt"):
            path.write_text(SECRET)
        (self.outside / "canary.json").write_text(json.dumps({"secret": SECRET}))
        own = [path for path in folder.rglob("*") if path.name != "hard"]
        shared = [self.outside / "canary.txt", self.outside / "canary.json"]
        self.watched[name] = dict.fromkeys(map(str, [folder, *own, *shared]), ())
        self.settle(name)

    def settle(self, name: str) -> None:
        """Reset the access times of files outside, which creating the case has read."""
        watched = self.watched[name]
        for path in watched:
            found = os.lstat(path)
            if found.st_atime_ns:
                os.utime(path, ns=(0, found.st_mtime_ns))
            watched[path] = _state(found)

    def clear(self) -> None:
        """Remove the files of the last case."""
        os.chdir(self.root)
        for folder in (self.work, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(exist_ok=True)
        os.chdir(self.work)

    def violations(self, name: str) -> list[str]:
        """Describe everything outside the folder that was read, changed or created; restore what was changed."""
        found = [self._violation(path, state) for path, state in self.watched[name].items()]
        found += [
            f"created {path.name} next to the folder"
            for path in self.work.iterdir()
            if path not in (self.run, self.out)
        ]
        found += [f"created {path.name} in the sandbox" for path in self.root.iterdir() if path not in self._own]
        # PyTorch 2.11 creates this folder when its compiler is imported.
        left = [one for one in self.temporary.iterdir() if not one.name.startswith("torchinductor_")]
        found += [f"left {one.name[:4]}* in the folder for temporary files" for one in left[:1]]
        found = [one for one in found if one]
        if any(not one.startswith("read") for one in found):
            shutil.rmtree(self.outside / name)
            self._make_outside(name)
        elif found:
            self.settle(name)
        return found

    @property
    def _own(self) -> tuple[Path, ...]:
        return self.outside, self.work, self.temporary

    def _violation(self, path: str, state: tuple[int, ...]) -> str:
        shown = "/" + path.removeprefix(f"{self.outside}/").partition("/")[2]
        try:
            status = os.lstat(path)
        except OSError:
            return f"removed outside{shown}"
        if _state(status) != state:
            return f"changed outside{shown}"
        if self.isolated and status.st_atime_ns and "/hard/" not in path:
            return f"read outside{shown}"
        return ""

    def leaks(self, output: str) -> list[str]:
        """Return where the secret of a file outside has leaked to: the output, or files."""
        found = ["secret in the output"] if SECRET in output else []
        for folder, _, files in os.walk(self.work):
            for file in files:
                path = os.path.join(folder, file)
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= LARGEST_READ:
                    with open(path, "rb") as opened:
                        if SECRET.encode() in opened.read():
                            found.append(f"secret in {file}")
        return found
