"""The split of Tatoeba that the recipes name can be made from the published file."""

import gzip
import hashlib
from itertools import chain
from pathlib import Path

import pytest
from scripts import tatoeba_split

from regard.recipe_files import load_recipe

ROOT = Path(__file__).parents[2]


def test_pairs_that_share_a_sentence_stay_together():
    pairs = [("Go.", "Geh."), ("go.", "Gehen Sie."), ("Hi.", "Hallo."), ("Leave.", "gehen sie.")]
    assert sorted(map(sorted, tatoeba_split.groups(pairs))) == [
        [("Go.", "Geh."), ("Leave.", "gehen sie."), ("go.", "Gehen Sie.")],
        [("Hi.", "Hallo.")],
    ]


def test_the_split_does_not_depend_on_the_order_of_the_file():
    pairs = [(f"Number {number}.", f"Nummer {number}.") for number in range(2000)]
    parts = tatoeba_split.split(pairs)
    assert parts == tatoeba_split.split(pairs[::-1])
    assert sorted(chain.from_iterable(parts.values())) == sorted(pairs)
    assert len(parts["test"]) > 0 < len(parts["valid"])


def test_the_files_have_the_names_that_the_recipes_have(tmp_path):
    (tmp_path / "deu.txt").write_text("Go.\tGeh.\tCC-BY 2.0\nGo.\tGeh.\nHi\u202f!\tHallo\u00a0!\n", encoding="utf-8")
    tatoeba_split.main(tmp_path / "deu.txt", tmp_path / "tatoeba_en_de")
    written = {f"tatoeba_en_de/{path.name}" for path in (tmp_path / "tatoeba_en_de").iterdir()}
    for recipe in ("tatoeba-de-en", "tatoeba-en-de"):
        data = load_recipe(recipe).data
        bitexts = [data.train, data.valid, *data.test.values()]
        assert {name.removesuffix(".gz") for one in bitexts for name in (one.source, one.target)} == written
    lines = [(tmp_path / "tatoeba_en_de" / f"train.{side}").read_text(encoding="utf-8") for side in ("en", "de")]
    assert sorted(lines[0].splitlines()) == ["Go.", "Hi !"] and sorted(lines[1].splitlines()) == ["Geh.", "Hallo !"]


def test_the_name_of_the_folder_says_the_other_language(tmp_path):
    (tmp_path / "cmn.txt").write_text("Hi.\t嗨。\tCC-BY 2.0\n", encoding="utf-8")
    tatoeba_split.main(tmp_path / "cmn.txt", tmp_path / "tatoeba_en_zh")
    data = load_recipe("tatoeba-zh-en").data
    named = {
        name.removesuffix(".gz")
        for one in (data.train, data.valid, *data.test.values())
        for name in (one.source, one.target)
    }
    assert {f"tatoeba_en_zh/{path.name}" for path in (tmp_path / "tatoeba_en_zh").iterdir()} == named


def test_the_documented_split_is_made_from_its_pairs(data_folder):
    folder, page = data_folder / "tatoeba_en_de", (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    lines = {
        (name, side): gzip.decompress((folder / f"{name}.{side}.gz").read_bytes()).decode().split("\n")[:-1]
        for name in ("train", "valid", "test")
        for side in ("en", "de")
    }
    parts = {name: list(zip(lines[name, "en"], lines[name, "de"], strict=True)) for name in ("train", "valid", "test")}
    assert tatoeba_split.split(sorted(chain.from_iterable(parts.values()))) == parts
    for name, side in lines:
        digest = hashlib.sha256("".join(f"{line}\n" for line in lines[name, side]).encode()).hexdigest()
        assert digest in page


def test_the_documented_chinese_split_has_these_hashes_and_shares_no_sentence(data_folder):
    folder, page = data_folder / "tatoeba_en_zh", (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    for side in ("en", "zh"):
        texts = {
            name: gzip.decompress((folder / f"{name}.{side}.gz").read_bytes()) for name in ("train", "valid", "test")
        }
        for name, text in texts.items():
            count = text.count(b"\n")
            assert f"| `{name}.{side}` | {count:,} | `{hashlib.sha256(text).hexdigest()}` |" in page
        lines = {name: set(text.decode().casefold().split("\n")[:-1]) for name, text in texts.items()}
        assert not lines["train"] & (lines["valid"] | lines["test"]) and not lines["valid"] & lines["test"]
