"""Folders of other toolkits whose bytes are changed at random give a run, or one sentence, and never anything else."""

import io
import random
import shutil
import zipfile

import pytest
import torch

from regard.errors import RegardError
from regard.exchange.importing import import_model
from tests.exchange import test_checkpoints as checkpoints
from tests.exchange.marian_folders import make_folder
from tests.shared import make_once

CHANGES = 25
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(autouse=True)
def one_layer(monkeypatch):
    """Models with one layer on each side, as the names of more tensors are read in the same way."""
    monkeypatch.setattr(checkpoints, "LAYERS", (1, 1))


def marian(folder):
    checkpoints.marian_folder(folder, draw_from(1))


def fairseq(folder):
    checkpoints.fairseq_folder(folder, draw_from(2), pre_norm=True)


def old_fairseq(folder):
    checkpoints.fairseq_folder(folder, draw_from(3), pre_norm=False, old=True)


def opennmt(folder):
    checkpoints.opennmt_folder(folder, draw_from(4))


def huggingface(folder):
    pytest.importorskip("transformers")
    make_folder(folder, **ONE_LAYER)


def ctranslate2(folder):
    pytest.importorskip("transformers")
    engine = pytest.importorskip("ctranslate2")
    make_folder(folder.with_name("first"), **ONE_LAYER)
    converter = engine.converters.TransformersConverter(
        str(folder.with_name("first")), copy_files=["source.spm", "target.spm"]
    )
    converter.convert(str(folder), quantization="int8")


def draw_from(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape, spread=0.3: torch.randn(*shape, generator=generator) * spread


def changed(content, chosen):
    """A copy of the bytes that is cut, or has some of them replaced, removed or repeated.

    Most changes of an archive are inside of one of its entries, so that its checksum is right.
    """
    if content[:2] == b"PK" and chosen.random() < 0.8:
        return changed_entry(content, chosen)
    content = bytearray(content)
    kind = chosen.randrange(5)
    at = chosen.randrange(len(content))
    # Where descriptions are, more often than in the numbers.
    at = chosen.choice([at, at % 4000 % len(content), len(content) - 1 - at % 3000 % len(content)])
    if kind == 0:
        return bytes(content[:at])
    if kind == 1:
        del content[at : at + chosen.randint(1, 40)]
    elif kind == 2:
        content[at:at] = content[max(0, at - 30) : at]
    else:
        for _ in range(chosen.randint(1, 8)):
            content[(at + chosen.randrange(64)) % len(content)] = chosen.choice(
                [0, 1, 46, 127, 128, 255, chosen.randrange(256)]
            )
    return bytes(content)


def changed_entry(content, chosen):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    described = [name for name in entries if name.endswith((".pkl", "yml.npy"))]
    name = chosen.choice([chosen.choice(sorted(entries)), *described])
    entries[name] = changed(entries[name], chosen) if entries[name] else b"?"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for key, entry in entries.items():
            archive.writestr(key, entry)
    return buffer.getvalue()


@pytest.mark.parametrize("count", [CHANGES, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [marian, fairseq, old_fairseq, opennmt, huggingface, ctranslate2])
def test_changed_bytes_give_a_run_or_one_sentence(tmp_path, tmp_path_factory, make, count):
    folder, out = tmp_path / "model", tmp_path / "run"
    made = make_once(tmp_path_factory, f"damaged-{make.__name__}", lambda place: make(place / "model"))
    shutil.copytree(made / "model", folder)
    names = sorted(path.name for path in folder.iterdir())
    contents = {name: (folder / name).read_bytes() for name in names}
    chosen = random.Random(count)
    refused = 0
    for number in range(count):
        name = chosen.choice(names)
        (folder / name).write_bytes(changed(contents[name], chosen))
        sentence = None
        try:
            import_model(folder, out)
        except RegardError as error:
            sentence = str(error)
        if sentence is not None:
            refused += 1
            assert "\n" not in sentence, (number, name, sentence)
            assert not (out / "recipe.toml").exists()
        shutil.rmtree(out, ignore_errors=True)
        (folder / name).write_bytes(contents[name])
    assert refused > count // 5
