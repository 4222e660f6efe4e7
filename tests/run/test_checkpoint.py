"""Checkpoints are read bit for bit as they were written, or an error names the damaged file."""

import pytest
import torch
from torch import nn

from regard.errors import CheckpointError
from regard.run.checkpoint import Checkpoint, load_weights, model_weights, read_checkpoint, write_checkpoint
from regard.storage.folder import Folder

FILES = ["weights.safetensors", "training.safetensors", "counters.json", "manifest.json"]


def make(step=7):
    return Checkpoint(
        weights={"a": torch.tensor([[1.0, -2.0], [0.1, 3e38]]), "b": torch.tensor([3.0], dtype=torch.bfloat16)},
        training={"optimizer/a/step": torch.tensor(step)},
        counters={"step": step, "best": None, "seconds": 0.1},
    )


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(Folder(tmp_path), "step-00000007", make())
    return tmp_path / "step-00000007"


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(Folder(folder), training=True)
    return str(caught.value)


def test_a_checkpoint_is_read_bit_for_bit(folder):
    written, read = make(), read_checkpoint(Folder(folder), training=True)
    for name, tensors in (("weights", written.weights), ("training", written.training)):
        back = getattr(read, name)
        assert back.keys() == tensors.keys()
        for key, tensor in tensors.items():
            assert back[key].dtype == tensor.dtype
            assert torch.equal(back[key], tensor)
    assert read.counters == written.counters


def test_the_folder_holds_these_files_and_its_parent_nothing_else(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert list(folder.parent.iterdir()) == [folder]


def test_the_state_of_training_is_read_only_on_request(folder):
    assert read_checkpoint(Folder(folder)).training == {}


def test_a_checkpoint_for_inference_has_no_training_file(tmp_path):
    write_checkpoint(Folder(tmp_path), "final", Checkpoint(make().weights))
    assert not (tmp_path / "final" / "training.safetensors").exists()
    assert read_checkpoint(Folder(tmp_path / "final")).counters == {}


def test_views_are_written_as_contiguous_tensors(tmp_path):
    table = torch.arange(6.0).view(2, 3)
    write_checkpoint(Folder(tmp_path), "c", Checkpoint({"turned": table.T, "row": table[1].clone()}))
    read = read_checkpoint(Folder(tmp_path / "c")).weights
    assert read["turned"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert read["row"].tolist() == [3.0, 4.0, 5.0]


def test_writing_again_replaces_the_checkpoint(folder):
    write_checkpoint(Folder(folder.parent), folder.name, make(step=8))
    assert read_checkpoint(Folder(folder), training=True).counters["step"] == 8


def test_unfinished_files_of_a_crash_are_not_in_the_next_checkpoint(folder):
    left_over = folder.with_name(".step-00000009.tmp")
    left_over.mkdir()
    (left_over / "junk.safetensors").write_bytes(b"half")
    write_checkpoint(Folder(folder.parent), "step-00000009", make(step=9))
    assert sorted(path.name for path in folder.with_name("step-00000009").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert refusal(folder) == f"{folder / name} is missing"


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    # Without only its last newline, the manifest is still valid.
    for size in (0, 1, len(content) // 2, len(content) - 2):
        (folder / name).write_bytes(content[:size])
        assert refusal(folder).startswith(f"{folder / name} is damaged: "), size


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_detected(folder, name):
    content = (folder / name).read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (folder / name).write_bytes(flipped)
        sentence = refusal(folder)
        if name == "manifest.json":
            # A changed hash cannot be told from a changed file.
            assert sentence.startswith(str(folder)), place
        else:
            assert sentence == f"{folder / name} is damaged: it is not what was written", place


def test_a_missing_folder_is_named(tmp_path):
    assert refusal(tmp_path / "absent") == f"{tmp_path / 'absent' / 'manifest.json'} is missing"


# Loading weights into a model


class Tied(nn.Module):
    """Two names for one matrix, and a bias."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(3, 2))
        self.output = self.embedding
        self.bias = nn.Parameter(torch.zeros(2))


def test_tied_weights_are_written_once():
    assert model_weights(Tied()).keys() == {"embedding", "bias"}


def test_weights_are_copied_into_the_model_and_stay_tied():
    model, given = Tied(), {"embedding": torch.ones(3, 2), "bias": torch.tensor([5.0, 6.0])}
    embedding = model.embedding
    load_weights(model, given, origin="here")
    assert model.embedding is model.output is embedding
    assert model.output.sum().item() == 6.0
    given["bias"].zero_()
    assert model.bias.tolist() == [5.0, 6.0]
    assert model.bias.requires_grad


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda weights: weights.pop("bias"), "bias"),
        (lambda weights: weights.update(extra=torch.zeros(1)), "extra"),
        (lambda weights: weights.update(embedding=torch.zeros(2, 3)), "embedding"),
        (lambda weights: weights.update(bias=torch.zeros(1)), "bias"),  # copy_ alone would broadcast it
        (lambda weights: weights.update(bias=torch.zeros(1, 2)), "bias"),
    ],
    ids=["missing", "extra", "transposed", "broadcastable", "one more dimension"],
)
def test_weights_that_do_not_fit_are_refused_and_the_model_is_unchanged(change, name):
    model, weights = Tied(), {"embedding": torch.ones(3, 2), "bias": torch.ones(2)}
    change(weights)
    with pytest.raises(CheckpointError) as caught:
        load_weights(model, weights, origin="step-7")
    assert str(caught.value) == f"step-7 does not fit this model: {name!r} is missing, extra or of another shape"
    assert model.embedding.count_nonzero() == model.bias.count_nonzero() == 0
