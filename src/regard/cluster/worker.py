"""What runs in the other processes: an actor that holds the model. And how the model gets there."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from regard import api
from regard.cluster.formats import Texts
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translator
from regard.nn.device import use_threads
from regard.storage.folder import Folder

FOLDERS = ("", "tokenizer/", "final/")  # of an exported run


@dataclass(frozen=True)
class PackedModel:
    """The files of a run that translating needs, by name, as one value to send; and a hash of them all."""

    files: dict[str, bytes]
    sha256: str

    def load(self, device: str) -> Translator:
        with tempfile.TemporaryDirectory(prefix="regard-") as folder:
            for path, content in self.files.items():
                *below, name = path.split("/")
                Folder(folder, *below).make().save_bytes(name, content)
            return api.load_translator(folder, "translate", device=device)


def pack_model(run: Path | str) -> PackedModel:
    """A run as it is now: all workers get these weights, though it may still be training."""
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
class Answer:
    """A shard's translations in order, and what there was to warn of."""

    translations: Texts
    warnings: list[str]


class Worker:
    """Translates shards with a model that it loads once."""

    def __init__(self, model: PackedModel, options: SearchOptions, *, device: str, threads: int) -> None:
        # Only kept here: an error while loading is to reach the command as itself, not as an actor that could not start.
        self.model, self.options, self.device, self.threads = model, options, device, threads
        self.translator: Translator | None = None

    def prepare(self) -> tuple[str, int]:
        """Loads the model; the machine's name and the process."""
        use_threads(self.threads)
        self.translator = self.model.load(self.device)
        return platform.node(), os.getpid()

    def translate(self, texts: Texts, first: int) -> Answer:
        """The translations of some lines, of which the first has that number in its file."""
        assert self.translator is not None, "prepare() comes first"
        warnings: list[str] = []
        self.translator.warn = warnings.append
        results = self.translator.stream([text or "" for text in texts], options=self.options, first=first)
        translations = [None if text is None else found[0].text for text, found in zip(texts, results, strict=True)]
        return Answer(translations, warnings)
