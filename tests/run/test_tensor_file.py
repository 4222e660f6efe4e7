"""Files that we write can be read by the safetensors library."""

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import CheckpointError
from regard.run.torch_tensors import TYPES, read_tensors, write_tensors
from regard.storage.folder import Folder


def test_the_safetensors_library_reads_what_was_written(tmp_path):
    tensors = {str(dtype): torch.arange(-3, 4).to(dtype) for dtype in TYPES}
    tensors |= {
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "transposed": torch.randn(3, 5).t(),
        "ä": torch.ones(1),
    }
    write_tensors(Folder(tmp_path), "a.safetensors", tensors)
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_the_bytes_do_not_depend_on_the_order_of_the_tensors(tmp_path):
    tensors = {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int8), "c": torch.zeros(2, dtype=torch.float64)}
    write_tensors(Folder(tmp_path), "one", tensors)
    write_tensors(Folder(tmp_path), "other", dict(reversed(tensors.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_truncated_file_is_refused(tmp_path):
    write_tensors(Folder(tmp_path), "a.safetensors", {"a": torch.ones(100)})
    complete = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(complete[:-9])
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_tensors(Folder(tmp_path), "a.safetensors")
