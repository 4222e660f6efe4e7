"""A study whose cells were never trained: outputs are references with some tokens changed, so that effects are known."""

import hashlib
import random
from pathlib import Path

import msgspec

import regard
from regard.metrics import score_all
from regard.study.cells import (
    OUTPUTS,
    RECORD,
    Cell,
    is_tried,
    outputs_name,
    recipe_of_cell,
    settings_digest,
    settings_of,
    tests_of,
)
from regard.study.choices import tried_cells
from regard.study.records import CellRecord, SetScores
from regard.study.study_file import VALID, candidates_of, read_study
from regard.tasks import task_of
from regard.text.bitext import load_bitext, pairs_fingerprint

RECIPE = """
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "valid.tsv" }
test = { test = { pairs = "test.tsv" } }
[tokenizer]
kind = "word"
size = 100
[model]
kind = "transformer"
preset = "tiny"
[train]
steps = 100
"""
WORDS = [f"w{number}" for number in range(50)]
STUDY = """
question = "Does a second layer help, at 100 % & with 50_000 steps?"
recipe = "toy.toml"
metric = "bleu"
seeds = [1, 2, 3]
baseline = "base"
tests = ["valid", "test"]
[settings]
"train.label_smoothing" = 0.1
[rows.base]
published = { bleu = 25.8, perplexity = 4.92 }
[rows."N_{1} & <x> 100 % ~^# \\\\\\\\"]
group = "C"
settings = { "model.num_layers" = 1 }
published = { bleu = 24.1 }
[rows."same | again"]
group = "D"
settings = { "model.dropout" = 0.2 }
choose = { "train.lr" = [0.001, 0.002] }
published = { bleu = 26.1 }
[rows.alike]
group = "D"
like = "same | again"
settings = { "model.dropout" = 0.3 }
"""
ERRORS = {"base": 0.10, "same | again": 0.10, "alike": 0.10}  # share of tokens that are changed; of other rows 0.3


def write_study(folder, text=STUDY):
    """Write the file of a study, its recipe and its data, and return the file and the study."""
    generator = random.Random(1)
    for name, size in (("train", 9), ("valid", 30), ("test", 40)):
        lines = [generator.choices(WORDS, k=generator.randint(4, 15)) for _ in range(size)]
        pairs = "".join(f"{' '.join(line)}\t{' '.join(reversed(line))}\n" for line in lines)
        (folder / f"{name}.tsv").write_text(pairs, encoding="utf-8")
    (folder / "toy.toml").write_text(RECIPE, encoding="utf-8")
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path, read_study(path)


def make_cells(study, out, *, errors=ERRORS, states=None):
    """Write all cells of a study as if they had been trained. `states` has those that did not finish, by row and seed."""
    sets = {}
    for row in study.rows:
        like = study.rows[row].like
        options = candidates_of(study, like or row)
        # The second candidate is the better one.
        cells = [*tried_cells(study, row), *(Cell(row, options[-1], seed) for seed in study.seeds)]
        for cell in cells:
            worse = 0.2 if cell.candidate != options[-1] else 0.0
            _write_cell(study, cell, out, errors.get(row, 0.3) + worse, (states or {}).get((row, cell.seed)), sets)


def _write_cell(study, cell, out, errors, state, sets):
    recipe = recipe_of_cell(study, cell)
    task = task_of(recipe)
    if not sets:
        for name in tests_of(study) or (VALID,):
            sets[name] = load_bitext(
                recipe.data.valid if name == VALID else recipe.data.test[name], folders=[Path(study.recipe).parent]
            )
    folder = cell.folder(out).make()
    scored = []
    generator = random.Random(cell.key)
    for name, pairs in sets.items():
        if state or (is_tried(study, cell) and name != VALID):
            continue
        outputs = [changed(pair.target, errors + generator.gauss(0, 0.01), generator) for pair in pairs]
        content = "".join(f"{text}\n" for text in outputs).encode()
        (folder / OUTPUTS).make().save_bytes(outputs_name(name), content)
        references, inputs = [pair.target for pair in pairs], [pair.source for pair in pairs]
        found = score_all(outputs, references, inputs, recipe.evaluate, compares=task.compares)
        scored.append(
            SetScores(
                name=name,
                pairs=len(pairs),
                sha256=str(pairs_fingerprint(pairs)["sha256"]),
                search="beam 4",
                scores={
                    "perplexity": 1 + 10 * errors + generator.gauss(0, 0.01),
                    **{one.name: one.value for one in found},
                },
                signatures={one.name: one.signature for one in found},
                outputs_sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    record = CellRecord(
        row=cell.row,
        candidate=cell.candidate,
        seed=cell.seed,
        state=state or "finished",
        problem="the loss is not finite" if state else "",
        settings=settings_of(study, cell),
        settings_sha256=settings_digest(recipe),
        parameters=123_456,
        steps=100,
        tests=scored,
        seconds=90.0,
        tokens_per_second=5_000.0,
        sharing_device=2,
        machine={"device": "NVIDIA H200", "torch": "2.11", "regard": regard.__version__},
    )
    folder.save_bytes(RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def changed(text, share, generator):
    """Return the text with this share of its tokens replaced by one that is not in the data."""
    return " ".join("?" if generator.random() < share else token for token in text.split())
