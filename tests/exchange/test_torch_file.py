"""Files of PyTorch are read without running what they hold."""

import argparse
import io
import os
import struct
import zipfile
from collections import OrderedDict

import pytest
import torch

from regard.errors import ConfigError
from regard.exchange.torch_file import read_torch_file
from regard.storage.folder import Folder

VALUE = {
    "model": OrderedDict(a=torch.arange(6.0).view(2, 3), b=torch.tensor([1, 2], dtype=torch.int64)),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "flags": torch.tensor([True, False]),
    "view": torch.arange(12).view(3, 4)[:, 1:3],
    "turned": torch.arange(6.0).view(2, 3).t(),
    "empty": torch.empty(0, 4),
    "args": argparse.Namespace(layers=6, name="tränsformer", rates=[0.1, -3e20], deep={"x": (1, None, True, 2**40)}),
    "texts": ["a" * 300, "b"],
}


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def read(tmp_path, content, **options):
    (tmp_path / "file.pt").write_bytes(content)
    return read_torch_file(Folder(tmp_path), "file.pt", **options)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_values_are_those_that_were_saved(tmp_path, zipped, protocol):
    found = read(tmp_path, saved(VALUE, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol))
    for name in ("half", "flags", "view", "turned", "empty"):
        assert torch.equal(found[name], VALUE[name]) and found[name].dtype == VALUE[name].dtype
        assert found[name].is_contiguous()
    assert all(torch.equal(found["model"][name], VALUE["model"][name]) for name in "ab")
    assert found["args"] == {
        "layers": 6, "name": "tränsformer", "rates": [0.1, -3e20], "deep": {"x": [1, None, True, 2**40]},
    }  # fmt: skip
    assert found["texts"] == VALUE["texts"]


def test_only_the_parts_that_are_asked_for_are_read(tmp_path):
    assert read(tmp_path, saved(VALUE), only=("half", "texts")).keys() == {"half", "texts"}


def test_parameters_are_tensors(tmp_path):
    layer = torch.nn.Linear(2, 3)
    found = read(tmp_path, saved({"weight": layer.weight}))
    assert torch.equal(found["weight"], layer.weight.detach())


class Runs:
    """An object that would run a command when it is restored."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("zipped", [True, False])
def test_what_would_run_a_command_is_refused_by_its_name(tmp_path, zipped):
    mark = tmp_path / "mark"
    content = saved({"model": Runs(f"touch {mark}")}, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ConfigError, match=r"(posix|nt)\.system, which is not read"):
        read(tmp_path, content)
    assert not mark.exists()


@pytest.mark.parametrize("value", [torch.nn.Linear(1, 1), torch.device("cpu"), {1, 2}, b"bytes", 3 + 4j, slice(1)])
def test_objects_of_other_kinds_are_refused(tmp_path, value):
    with pytest.raises(ConfigError, match="which is not read"):
        read(tmp_path, saved({"value": value}))


def program(code, *, entries=(), compression=zipfile.ZIP_STORED):
    """A file of PyTorch with this description."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", code)
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    + b"K\x04tQK%c(K%ctq\x00(K\x01tN}tR."
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (b"\x80\x02", "is damaged"),
        (b"]K\x01", "is damaged"),
        (b"K\x01a.", "is damaged"),
        (b"h\x05.", "is damaged"),
        (b"X\xff\xff\xff\xffabc.", "is damaged"),
        (b"K\x01K\x02s.", "is damaged"),
        (b"cbuiltins\neval\n" + text("1") + b"\x85R.", "builtins.eval"),
        (b"ccollections\nOrderedDict\nK\x01R.", "a call of something"),
        (b"}]K\x01s.", "a key that is neither"),
        (b"\xffK\x01.", "the instruction"),
        (b"ios\nsystem\n.", "the instruction b'i'"),
        (TENSOR % (0, 5), "reaches beyond its storage"),
        (TENSOR % (3, 2), "reaches beyond its storage"),
    ],
)
def test_damaged_and_hostile_descriptions_are_refused_in_one_sentence(tmp_path, code, sentence):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, program(code, entries=[("archive/data/0", bytes(16))]))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_the_template_of_hostile_tensors_is_right(tmp_path):
    numbers = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = read(tmp_path, program(TENSOR % (1, 2), entries=[("archive/data/0", numbers.numpy().tobytes())]))
    assert found.tolist() == [2.0, 3.0]


def test_numbers_that_are_missing_are_noticed(tmp_path):
    with pytest.raises(ConfigError, match="the numbers of storage '0' are missing"):
        read(tmp_path, program(TENSOR % (0, 2), entries=[("archive/data/0", bytes(8))]))


def test_a_compressed_archive_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has the compressed entry"):
        read(tmp_path, program(b"N." + b" " * 999, compression=zipfile.ZIP_DEFLATED))


def test_a_value_that_contains_itself_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nested too deeply"):
        read(tmp_path, program(b"]q\x00h\x00a."))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello world", b"\x80\x02K\x01."])
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ConfigError):
        read(tmp_path, content)
