"""Adam computes what PyTorch's Adam computes, without importing the compiler."""

import subprocess
import sys

import pytest
import torch

from regard.training.optimizers import Adam

SETTINGS = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.1}
GO = torch.zeros(())


def weights():
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=draw) for shape in ((3, 4), (5,), ())]


@pytest.mark.parametrize(("decoupled", "theirs"), [(False, torch.optim.Adam), (True, torch.optim.AdamW)])
def test_steps_equal_those_of_pytorch(decoupled, theirs):
    ours, other = weights(), weights()
    optimizer = Adam(ours, lr=0.125, decoupled=decoupled, **SETTINGS)
    reference = theirs(other, lr=0.125, **SETTINGS)
    draw = torch.Generator().manual_seed(2)
    for _ in range(5):
        for one, two in zip(ours, other, strict=True):
            one.grad = torch.randn(one.shape, generator=draw)
            two.grad = one.grad / 4
        optimizer.step(excess=torch.tensor(4.0), skip=GO)
        reference.step()
    for one, two in zip(ours, other, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_a_skipped_step_changes_neither_weights_nor_moments_nor_step_count():
    ours = weights()
    optimizer = Adam(ours, lr=0.1, decoupled=True, **SETTINGS)

    def everything():
        state = [value for one in ours for value in optimizer.state[one].values()]
        return [one.clone() for one in [*ours, *state]]

    for one in ours:
        one.grad = torch.ones_like(one)
    optimizer.step(excess=None, skip=GO)
    before = everything()
    for one in ours:
        one.grad = torch.full_like(one, float("nan"))
    optimizer.step(excess=None, skip=torch.ones(()))
    assert all(torch.equal(one, two) for one, two in zip(before, everything(), strict=True))


def test_weights_without_a_gradient_do_not_change():
    ours = weights()
    kept = [one.clone() for one in ours]
    optimizer = Adam(ours, lr=0.1, decoupled=True, **SETTINGS)
    optimizer.step(excess=None, skip=GO)
    ours[0].grad = torch.ones_like(ours[0])
    optimizer.step(excess=None, skip=GO)
    assert [torch.equal(one, two) for one, two in zip(ours, kept, strict=True)] == [False, True, True]
    optimizer.zero_grad()
    assert ours[0].grad is None


@pytest.mark.slow
def test_training_does_not_import_the_compiler(tmp_path):
    overrides = ["train.steps=2", "train.validate_pairs=2", "data.train.generate=copy/valid"]
    program = f"""
import sys
from regard import api
for optimizer in ("adam", "muon"):
    api.train("copy", out=optimizer, overrides=[*{overrides!r}, f"train.optimizer={{optimizer}}"])
    print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["[]", "[]"]
