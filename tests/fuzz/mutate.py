"""Cases: a valid folder, mutations of it, and the command to run. All are drawn from a seed and are plain JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from random import Random
from typing import Any

import msgspec

from regard.models import MODELS
from tests.fuzz import binary_edits
from tests.fuzz.bases import RUNS, Base
from tests.fuzz.odd_values import JSON_VALUES, LOG_BODIES, NAMES, SPARSE_SIZES, TEMPORARY_NAMES, TOML_VALUES
from tests.fuzz.request_cases import draw_request
from tests.fuzz.tree_edits import draw_edit

Mutation = dict[str, Any]
RUN_BASES = [*RUNS, "int8"]

# The weight of each target, and the folders that it accepts.
TARGETS: dict[str, tuple[int, list[str]]] = {
    "request": (28, []),
    "open": (14, RUN_BASES),
    "translate": (9, RUN_BASES),
    "report": (8, RUN_BASES),
    "card": (6, RUN_BASES),
    "export": (3, RUN_BASES),
    "export-int8": (2, RUN_BASES),
    "serve": (4, RUN_BASES),
    "doctor": (5, RUN_BASES),
    "look": (2, RUN_BASES),
    "resume": (1, ["bpe"]),
    "teach": (2, RUN_BASES),
    "store": (6, ["store"]),
    "store-train": (1, ["store"]),
    "prepare": (4, ["half", "store"]),
    "distill": (3, ["distilled", "distilling"]),
    "ray": (4, ["ray"]),
}
KINDS = ["link"] * 6 + ["hard-link", "fifo", "socket", "folder", "file", "remove", "sparse", "new-file"]
LINKS = ["outside", "outside", "outside", "loop", "dangling", "parent", "self", "device"]


@dataclass(frozen=True)
class Case:
    """A target, a base folder, its mutations, and whether hashes are computed again after them."""

    target: str
    base: str
    sealed: bool
    mutations: list[Mutation] = field(default_factory=list)
    seed: int = 0

    def labels(self) -> dict[str, Any]:
        """Return the keys of the counts in summaries."""
        return {"target": self.target, "mutations": sorted({str(one["kind"]) for one in self.mutations})}

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def draw_case(seed: str, number: int, bases: dict[str, Base], targets: list[str]) -> Case:
    """Return the case of this number; equal arguments give equal cases."""
    random = Random(f"{seed}:{number}")
    target = random.choices(targets, [TARGETS[name][0] for name in targets])[0]
    if target == "request":
        return Case(target, "char", sealed=False, mutations=[draw_request(random)], seed=number)
    base = bases[random.choice(TARGETS[target][1])]
    count = random.choices([1, 2, 3, 4], [60, 25, 10, 5])[0]
    mutations = [draw_mutation(random, base) for _ in range(count)]
    return Case(target, base.name, random.random() < 0.8, mutations, seed=number)


def draw_mutation(random: Random, base: Base) -> Mutation:
    kind = random.choices(["tree", "bytes", "kind", "binary", "log", "manifest"], [42, 10, 20, 14, 8, 6])[0]
    trees = [name for name in base.files if name.endswith((".json", ".toml")) and not name.endswith("manifest.json")]
    binaries = [name for name in base.files if name.endswith((".safetensors", ".model", ".ids", ".offsets"))]
    manifests = [name for name in base.files if name.endswith("manifest.json")]
    if kind == "log" and "log.jsonl" in base.files:
        return _draw_log(random, base)
    if kind == "manifest" and manifests:
        return _draw_manifest(random, random.choice(manifests), base)
    if kind == "binary" and binaries:
        return _draw_binary(random, random.choice(binaries), base)
    if kind == "kind":
        return _draw_kind(random, base)
    if kind == "bytes" or not trees:
        return {"kind": "bytes", "file": random.choice(list(base.files)), **binary_edits.draw_bytes(random)}
    weights = [4 if name == "recipe.toml" else 1 for name in trees]
    return _draw_tree(random, random.choices(trees, weights)[0], base)


def _draw_tree(random: Random, file: str, base: Base) -> Mutation:
    values = TOML_VALUES if file.endswith(".toml") else JSON_VALUES
    return {"kind": "tree", "file": file, "edit": draw_edit(random, base.tree(file), values, _known_keys())}


@cache
def _known_keys() -> list[str]:
    """Return options that a recipe may have."""
    families = [MODELS.get(name, where="model.kind") for name in MODELS.names()]
    options = [option.name for family in families for option in msgspec.structs.fields(family.config)]
    return sorted({*options, "preset", "kind", "base", "store", "pairs", "step", "seconds", "best", "event"})


def _draw_log(random: Random, base: Base) -> Mutation:
    lines = base.files["log.jsonl"].decode().splitlines()
    line = random.randrange(len(lines))
    action = random.choices(["tree", "body", "repeat", "delete"], [12, 6, 1, 1])[0]
    mutation: Mutation = {"kind": "log", "file": "log.jsonl", "line": line, "action": action}
    if action == "tree":
        event = json.loads(lines[line])
        event.pop("crc")
        mutation["edit"] = draw_edit(random, event, JSON_VALUES, ["step", "event", "best", "seconds"])
    if action == "body":
        mutation["body"] = random.randrange(len(LOG_BODIES))
    return mutation


def _draw_manifest(random: Random, file: str, base: Base) -> Mutation:
    files = json.loads(base.files[file])["files"]
    edit = draw_edit(random, files, JSON_VALUES, ["", "a/b", *NAMES])
    return {"kind": "manifest", "file": file, "edit": edit}


def _draw_binary(random: Random, file: str, base: Base) -> Mutation:
    if random.random() < 0.2:
        return {"kind": "bytes", "file": file, **binary_edits.draw_bytes(random)}
    if file.endswith(".safetensors"):
        return {"kind": "tensors", "file": file, **binary_edits.draw_tensors(random, base.files[file])}
    if file.endswith(".model"):
        return {"kind": "proto", "file": file, **binary_edits.draw_proto(random)}
    return {"kind": "array", "file": file, **binary_edits.draw_array(random)}


def _draw_kind(random: Random, base: Base) -> Mutation:
    """Replace a file or a folder by something of another kind, or add one."""
    places = random.choice([list(base.files), base.folders or list(base.files), TEMPORARY_NAMES])
    mutation: Mutation = {"kind": random.choice(KINDS), "file": random.choice(places)}
    if mutation["kind"] == "link":
        mutation["to"] = random.choice(LINKS)
    if mutation["kind"] == "sparse":
        mutation["size"] = random.choices(SPARSE_SIZES, [6, 2, 2])[0]
    return mutation
