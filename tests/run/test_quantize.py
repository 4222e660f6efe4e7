"""Quantized weights are close to the originals, and exact where they must be."""

import torch

from regard.run.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from regard.run.torch_tensors import dequantize, quantize
from regard.storage.folder import Folder


def weights():
    torch.manual_seed(0)
    return {"matrix": torch.randn(40, 30) * torch.logspace(-3, 1, 40)[:, None], "vector": torch.randn(30)}


def test_float32_is_bit_equal():
    before = weights()
    after = dequantize(quantize(before, "float32"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_int8_is_within_half_a_step_of_the_scale_of_each_row():
    before = weights()
    stored = quantize(before, "int8")
    assert stored["matrix"].dtype == torch.int8 and stored["vector"].dtype == torch.float16
    after = dequantize(stored)
    assert after.keys() == before.keys()
    step = before["matrix"].abs().amax(dim=1, keepdim=True) / 127
    assert ((after["matrix"] - before["matrix"]).abs() <= 0.5001 * step).all()


def test_a_row_of_zeros_stays_zero():
    assert torch.equal(dequantize(quantize({"m": torch.zeros(2, 3)}, "int8"))["m"], torch.zeros(2, 3))


def test_a_checkpoint_of_any_kind_is_read_as_float32(tmp_path):
    before = weights()
    sizes = []
    for kind in ("float32", "float16", "int8"):
        write_checkpoint(Folder(tmp_path), kind, Checkpoint(before), kind=kind)
        after = read_checkpoint(Folder(tmp_path, kind)).weights
        assert {tensor.dtype for tensor in after.values()} == {torch.float32}
        torch.testing.assert_close(after["matrix"], before["matrix"], rtol=0.01, atol=0.2)
        sizes.append((tmp_path / kind / "weights.safetensors").stat().st_size)
    assert sizes[0] > sizes[1] > sizes[2]
