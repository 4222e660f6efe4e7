"""Captioning: images as patches, codecs from strangers, and what is refused."""

import json
import weakref

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.explain.pictures import overlay
from regard.explain.trace import TraceOptions
from regard.models import build_model
from regard.recipe_files import load_recipe
from regard.storage.folder import Folder
from regard.tasks.captioning import IMAGE_FILE, CaptioningTask
from regard.tasks.corpus import TextPairs
from regard.tasks.recipe_checks import resolve
from regard.text.corpus import Pair
from regard.text.generators import generate
from regard.text.images import image_uri, png_bytes

SMALL = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16"]
GREY = np.full((8, 12, 3), 51, dtype=np.uint8)
PAIRS = [Pair(image_uri(GREY), "a b"), Pair(image_uri(255 - GREY), "c")]


@pytest.fixture
def task():
    return CaptioningTask(load_recipe("shapes", SMALL))


@pytest.fixture
def codec(task):
    return task.fit(TextPairs(PAIRS))


def test_a_batch_has_patches_as_numbers_and_captions_between_bos_and_eos(task, codec):
    batch = task.collate(task.encode(PAIRS, codec), np.array([1, 0]))
    # 8 x 12 pixels have 2 x 3 patches of 4 x 4 pixels with three colours.
    assert batch.source.values.shape == (12, 48) and batch.source.layout.lengths == (6, 6)
    assert batch.source.values[0, 0] == pytest.approx(204 / 255) and batch.source.values[6, 0] == pytest.approx(
        51 / 255
    )
    a, b, c = (codec.tokenizer.encode(word)[0] for word in "abc")
    assert batch.labels.as_lists() == [[c, 2], [a, b, 2]] and batch.target.as_lists() == [[1, c], [1, a, b]]


def test_images_are_kept_as_bytes(task, codec):
    assert task.encode(PAIRS, codec)["source"].values.dtype == np.uint8


def test_the_position_of_a_patch_is_that_of_its_row_and_its_column(task, codec):
    model = build_model(task.recipe.model, **task.sizes(codec))
    assert model.row_positions.shape == (2, 16) and model.column_positions.shape == (3, 16)
    assert model.source_embedding is model.target_embedding


def test_a_image_of_another_size_is_refused_with_both_sizes(task, codec):
    other = image_uri(np.zeros((4, 4, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"example 2: an image has 4 x 4 pixels; this model reads 8 x 12"):
        task.encode([PAIRS[0], Pair(other, "a")], codec)
    predictor = task.predictor(build_model(task.recipe.model, **task.sizes(codec)).eval(), codec)
    with pytest.raises(DecodeError, match="an image has 4 x 4 pixels"):
        predictor.predict([other])


def test_an_input_that_names_a_file_is_refused(task, codec, tmp_path):
    (tmp_path / "one.png").write_bytes(png_bytes(GREY))
    predictor = task.predictor(build_model(task.recipe.model, **task.sizes(codec)).eval(), codec)
    with pytest.raises(DecodeError, match="is not an image"):
        predictor.predict([str(tmp_path / "one.png")])
    # Whoever calls `look` has the file.
    trace = task.trace(predictor, str(tmp_path / "one.png"), TraceOptions())
    assert trace.source.tokens == ["1,1", "1,2", "1,3", "2,1", "2,2", "2,3"]


def test_data_files_name_images_in_the_data_folder(tmp_path):
    (tmp_path / "one.png").write_bytes(png_bytes(GREY))
    (tmp_path / "train.tsv").write_text("one.png\ta b\n")
    recipe = load_recipe("shapes", [*SMALL, 'data.train={pairs="train.tsv"}', 'data.valid={pairs="train.tsv"}'])
    corpus = CaptioningTask(recipe).read([tmp_path])
    assert corpus.train.examples()[0] == corpus.valid[0] == Pair(image_uri(GREY), "a b")


def test_patches_must_divide_the_image():
    with pytest.raises(ConfigError, match="8 x 12 pixels cannot be cut into patches of 5 x 5"):
        build_model({"kind": "captioner", "patch": 5}, image_height=8, image_width=12, target_size=9)


@pytest.mark.parametrize("size", [{"height": 10**9, "width": 8}, {"height": 0, "width": 8}, {"height": 8}, [8, 8]])
def test_a_damaged_codec_is_refused(task, codec, tmp_path, size):
    codec.save(Folder(tmp_path))
    (tmp_path / IMAGE_FILE).write_text(json.dumps(size))
    with pytest.raises(CheckpointError, match="is damaged"):
        task.load_codec(Folder(tmp_path))


def test_a_saved_codec_is_loaded(task, codec, tmp_path):
    codec.save(Folder(tmp_path))
    loaded = task.load_codec(Folder(tmp_path))
    assert (loaded.height, loaded.width) == (8, 12) and loaded.tokenizer.decode([3, 4]) == codec.tokenizer.decode(
        [3, 4]
    )


def test_the_patch_with_all_attention_is_the_brightest():
    weights = np.zeros((2, 3), dtype=np.float32)
    weights[1, 2] = 0.7
    lit = overlay(GREY, weights).sum(axis=-1).astype(int)
    assert lit[:4].max() == lit[:, :8].max() < lit[4:, 8:].min()


def test_captions_do_not_depend_on_the_other_images_of_a_batch(task):
    pairs = list(generate("shapes/seen", {"count": 6, "size": 16}))
    codec = task.fit(TextPairs(pairs))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(task.recipe.model, **task.sizes(codec)).eval()
    predictor = task.predictor(model, codec)
    lines = [pair.source for pair in pairs]
    assert predictor.predict(lines) == [predictor.predict([line])[0] for line in lines]


def test_images_are_moved_to_the_device_batch_by_batch(task, monkeypatch, threads):
    threads(1)
    pairs = list(generate("shapes/seen", {"count": 6, "size": 16}))
    codec = task.fit(TextPairs(pairs))
    predictor = task.predictor(build_model(task.recipe.model, **task.sizes(codec)).eval(), codec)
    alive, source = weakref.WeakSet(), predictor.source

    def watched(batch):
        assert not alive, "another batch is still in memory"
        found = source(batch)
        alive.add(found.values)
        return found

    monkeypatch.setattr(predictor, "source", watched)
    one_each = SearchOptions(tokens=predictor.limit, beam=1, max_extra=1)
    assert len(predictor.predict([pair.source for pair in pairs], options=one_each)) == 6


def test_copying_from_a_image_is_refused():
    with pytest.raises(ConfigError, match="an image has no words to copy"):
        resolve(load_recipe("shapes", ["model.copy=true"]))
