"""A store leaves out text that cannot be used, lists it, and is the same after an interruption."""

import io
import json

import numpy as np
import pytest

import regard
from regard.errors import ConfigError, DataError
from regard.preprocess import prepare
from regard.recipe_files import load_recipe
from tests.preprocess.conftest import PAIRS, lines

BAD = {5: "\tempty\n", 700: "three\tcolumns\there\n", 701: "none\n", 2304: "last\t \n"}  # by line number
REASONS = ["empty source", "3 columns instead of 2", "1 column instead of 2", "empty target"]
SKIP = ["data.on_error=skip"]


@pytest.fixture
def messy(folder):
    """The corpus with bad lines among the others."""
    text = lines()
    for number, line in BAD.items():
        text.insert(number - 1, line)
    (folder / "train.tsv").write_text("".join(text).replace("\n", "\r\n", 10))
    return folder


def listed(store):
    return [row.split("\t")[1:3] for row in (store.folder / "left-out.tsv").read_text().splitlines()[1:]]


def test_a_store_of_messy_text_has_the_ids_of_the_rest_and_lists_what_is_left_out(messy, make):
    with pytest.raises(DataError, match=r"line 5 of .*train\.tsv has an empty source side.*data\.on_error=skip leaves"):
        make("refused")
    store = make("ids", SKIP)
    assert listed(store) == [[str(number), reason] for number, reason in zip(BAD, REASONS, strict=True)]
    assert store.info.left_out == dict.fromkeys(REASONS, 1) and store.info.mended == {"Windows line endings": 10}
    (messy / "train.tsv").write_text("".join(lines()))
    clean = make("clean")
    assert [shard.sha256 for shard in store.info.shards] == [shard.sha256 for shard in clean.info.shards]
    assert not (clean.folder / "left-out.tsv").exists()
    with pytest.raises(ConfigError, match="was started with other settings"):
        make("ids")


def test_a_stream_and_a_resumed_store_list_the_same(messy, make, monkeypatch):
    complete = make("complete", SKIP)
    stream = io.BufferedReader(io.BytesIO((messy / "train.tsv").read_bytes()))
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream}))
    assert listed(make("stream", [*SKIP, 'data.train={pairs="-"}'])) == listed(complete)

    def stop_late(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "_finish", stop_late)
        with pytest.raises(KeyboardInterrupt):
            make("resumed", SKIP)
    assert listed(make("resumed", SKIP)) == listed(complete)


def test_store_json_of_clean_text_is_that_of_earlier_versions(make):
    keys = json.loads((make().folder / "store.json").read_text()).keys()
    assert keys == {
        *("version", "pairs", "source_tokens", "target_tokens", "source_ids", "target_ids", "tokenizer"),
        *("tokenizer_sha256", "lengths", "shards", "sha256"),
    }


def test_sides_that_are_too_long_are_cut_in_the_store(make, folder):
    store = make("cut", ["data.cut_source=true", "data.cut_target=true", "data.max_length=5"])
    complete = make("complete")
    lengths = [
        opened.encoded(opened.tokenizers(load_recipe(str(folder / "my.toml")).tokenizer))
        for opened in (store, complete)
    ]
    rows = np.arange(PAIRS)
    for cut, whole in zip(*(one.lengths_of(rows) for one in lengths), strict=True):
        assert np.array_equal(cut, np.minimum(whole, 5)) and whole.max() > 5
    sentence = (
        "each source in .*cut is cut to 5 tokens, but data.cut_source is true and data.max_length 256; prepare it"
    )
    with pytest.raises(ConfigError, match=sentence):
        regard.train(
            str(folder / "my.toml"), out=folder / "run", overrides=["data.train.store=cut", "data.cut_source=true"]
        )
    overrides = [
        "data.train.store=cut",
        "data.cut_source=true",
        "data.cut_target=true",
        "data.max_length=5",
        "train.steps=1",
    ]
    assert regard.train(str(folder / "my.toml"), out=folder / "run", overrides=overrides, data=folder).finished


def test_the_card_of_a_run_on_a_store_says_what_the_store_left_out(messy, make):
    make("ids", SKIP)
    run = regard.train(
        str(messy / "my.toml"),
        out=messy / "run",
        data=messy,
        overrides=["data.train.store=ids", *SKIP, "train.steps=2"],
        listen=lambda event: None,
    ).run
    assert (
        "| left out of the store | empty source (1), 3 columns instead of 2 (1), " in regard.card(run.path).read_text()
    )
