"""Small valid folders of every kind, which the fuzzer mutates."""

from __future__ import annotations

import json
import os
import random
import shutil
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import regard
from regard.api import card, export
from regard.cluster import corpus as cluster_corpus
from regard.distilling import distill
from regard.preprocess import prepare, shards
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.training.events import Event, Progress
from tests.fuzz.ray_stub import without_ray

RUN_NAME = "fuzz-de-en"  # the folder under test; the name gives the model its languages
WORDS = ["haus", "hund", "rot", "und", "ist", "klein", "baum", "a", "b", "c"]
RECIPE = """
[data]
train = {{ source = "train.de", target = "train.{target}" }}
valid = {{ source = "valid.de", target = "valid.{target}" }}
license = "CC0"
[tokenizer]
kind = "{tokenizer}"
size = 40
joint = {joint}
[model]
kind = "{model}"
width = 8
{more}
[train]
steps = 3
tokens = 64
threads = 1
device = "cpu"
log_every = 1
checkpoint_every = 2
validate_pairs = 2
keep = 2
[decode]
beam = 2
max_extra = 4
iterations = 2
"""
LAYERS = "num_layers = 1\nnum_heads = 2\nhidden = 8\ndropout = 0.0"
RUNS = {
    "char": {"tokenizer": "char", "joint": "true", "model": "transformer", "more": LAYERS},
    "bpe": {"tokenizer": "bpe", "joint": "true", "model": "transformer", "more": LAYERS},
    "separate": {"tokenizer": "unigram", "joint": "false", "model": "transformer", "more": f"{LAYERS}\ntie = 'target'"},
    "rnn": {"tokenizer": "word", "joint": "true", "model": "rnn", "more": "hidden = 8"},
    "cmlm": {"tokenizer": "char", "joint": "true", "model": "cmlm", "more": LAYERS},
    "tagger": {"tokenizer": "char", "joint": "true", "model": "tagger", "more": LAYERS},
    "pointer": {"tokenizer": "word", "joint": "true", "model": "pointer", "more": LAYERS, "target": "positions"},
}
UNFINISHED = "bpe"  # stopped after its first step


@dataclass(frozen=True)
class Base:
    """A valid folder, held in memory: paths relative to it, and their content."""

    name: str
    files: dict[str, bytes] = field(repr=False)
    parsed: dict[str, str] = field(default_factory=dict, repr=False)  # trees as JSON

    @cached_property
    def folders(self) -> list[str]:
        return sorted({str(parent) for name in self.files for parent in Path(name).parents if str(parent) != "."})

    def tree(self, file: str) -> Any:
        """Return a copy of the value of a JSON or TOML file."""
        return json.loads(self._trees(file))

    def _trees(self, file: str) -> str:
        if file not in self.parsed:
            text = self.files[file].decode()
            self.parsed[file] = json.dumps(tomllib.loads(text)) if file.endswith(".toml") else text
        return self.parsed[file]

    def write(self, folder: Path) -> None:
        """Create the folder with its files."""
        os.mkdir(folder)
        for name in self.folders:
            os.mkdir(f"{folder}/{name}")
        for name, content in self.files.items():
            file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
            os.write(file, content)
            os.close(file)


def load_base(folder: Path) -> Base:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return Base(folder.name, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


def write_text(folder: Path) -> None:
    """Write the parallel text that every base is made from."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(5)
    for name, count in (("train", 60), ("valid", 3)):
        lines = [generator.choices(WORDS, k=generator.randint(1, 5)) for _ in range(count)]
        (folder / f"{name}.de").write_text("".join(f"{' '.join(line)}\n" for line in lines))
        # The words of a target are as many as those of its source, so they are labels too.
        (folder / f"{name}.en").write_text("".join(f"{' '.join(reversed(line))}\n" for line in lines))
        positions = (" ".join(map(str, reversed(range(len(line))))) for line in lines)
        (folder / f"{name}.positions").write_text("".join(f"{row}\n" for row in positions))
    for name, settings in RUNS.items():
        recipe = RECIPE.format(**{"target": "en", **settings})
        # A tagger does not search, and refuses options of search.
        (folder / f"{name}.toml").write_text(recipe.partition("[decode]")[0] if name == "tagger" else recipe)
    store = RECIPE.format(target="en", **RUNS["bpe"]).replace(
        'target = "train.en"', 'target = "train.en", store = "../store"'
    )
    (folder / "on-store.toml").write_text(store)


def use_small_shards() -> None:
    """Make `regard data prepare` split this small text into several shards."""
    prepare.PAIRS_PER_SHARD = 20
    shards.CHUNK_PAIRS = 10


def make_bases(folder: Path, data: Path) -> None:
    """Make every base below `folder` from the text in `data`."""
    use_small_shards()
    for name in RUNS:
        steps: list[Progress] = []

        def stop(name: str = name, steps: list[Progress] = steps) -> bool:
            return name == UNFINISHED and bool(steps)

        def listen(event: Event, steps: list[Progress] = steps) -> None:
            steps.extend([event] if isinstance(event, Progress) else [])

        regard.train(str(data / f"{name}.toml"), out=folder / name, data=data, stop=stop, listen=listen)
        card(folder / name, evaluated=False)
    assert not RunFolder(folder / UNFINISHED).finished
    export(folder / "char", folder / "int8", weights="int8")
    recipe = load_recipe(str(data / "bpe.toml"))
    prepare.prepare(recipe, folder / "store", folders=[data])
    shutil.copytree(folder / "store", folder / "half")
    (folder / "half" / "store.json").unlink()
    shutil.rmtree(folder / "half" / "shard-00002")
    texts = {"source": data / "valid.de", "reference": data / "valid.en"}
    distill(folder / "char", folder / "distilled", device="cpu", **texts)
    shutil.copytree(folder / "distilled", folder / "distilling")
    (folder / "distilling" / "target.txt").rename(folder / "distilling" / "target.txt.part")
    about = json.loads((folder / "distilling" / "card.json").read_text())
    (folder / "distilling" / "card.json").write_text(json.dumps({**about, "done": False}))
    with without_ray():
        cluster_corpus.translate_corpus(
            folder / "char", str(data / "valid.de"), folder / "ray", shard_lines=2, device="cpu"
        )
    (folder / "ray" / "part-00001.txt").unlink()
