"""The Ray actor that translates shards, and the model as a value that can be sent to it."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from regard import api, loading
from regard.cluster.formats import Texts
from regard.config import SearchOptions
from regard.decoding.translator import Translator
from regard.storage.folder import Folder

FOLDERS = ("", "tokenizer/", "final/")  # of an exported run


@dataclass(frozen=True)
class PackedModel:
    """The content of the files that translation needs, by path, and a hash of all of them."""

    files: dict[str, bytes]
    sha256: str
    to: str | None = None  # the language to translate into, of a model that has several

    def load(self, device: str, threads: int) -> Translator:
        with tempfile.TemporaryDirectory(prefix="regard-") as folder:
            for path, content in self.files.items():
                *below, name = path.split("/")
                Folder(folder, *below).make().save_bytes(name, content)
            return loading.load_translator(folder, "translate", device=device, threads=threads).into(self.to)


def pack_model(run: Path | str) -> PackedModel:
    """Return a snapshot of a run. All workers get the same weights even if the run is still training."""
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        copy = api.export(run, Path(folder, "run"), cards=False).folder
        places = {place: Folder(copy, *place.split("/")[:-1]) for place in FOLDERS}
        found = {
            place + name: one.load_bytes(name, limit=sys.maxsize - 1)
            for place, one in places.items()
            for name in one.names()
            if one.has_file(name)
        }
    files = dict(sorted(found.items()))
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return PackedModel(files, digest.hexdigest())


@dataclass(frozen=True)
class ShardResult:
    """The translations of a shard in order, and warnings about its lines."""

    translations: Texts
    warnings: list[str]


class RayWorker:
    """Loads the model once and translates shards."""

    def __init__(self, model: PackedModel, options: SearchOptions, *, device: str, threads: int) -> None:
        # The model is loaded in `prepare`: an error in a constructor would reach the command only as an actor that died.
        self.model, self.options, self.device, self.threads = model, options, device, threads
        self.translator: Translator | None = None

    def prepare(self) -> tuple[str, int]:
        """Load the model; return the name of the machine and the process id."""
        self.translator = self.model.load(self.device, self.threads)
        return platform.node(), os.getpid()

    def translate(self, texts: Texts, first: int) -> ShardResult:
        """Translate lines; `first` is the number of the first line in its file, for warnings."""
        assert self.translator is not None, "call prepare() first"
        warnings: list[str] = []
        self.translator.warn = warnings.append
        results = self.translator.stream([text or "" for text in texts], options=self.options, first=first)
        translations = [None if text is None else found[0].text for text, found in zip(texts, results, strict=True)]
        return ShardResult(translations, warnings)
