"""The hidden tests of the exercise shifted_positions."""

import math

import torch
from torch import Tensor

from regard.learn.expecting import Program, expect


def PE(pos: int, d_model: int) -> Tensor:  # noqa: N802
    """Return the encoding of a position, in double precision."""
    pairs = [(f(pos / 10000 ** (two_i / d_model))) for two_i in range(0, d_model, 2) for f in (math.sin, math.cos)]
    return torch.tensor(pairs, dtype=torch.float64)


def moved(own: Program, k: int, d_model: int, pos: int) -> Tensor:
    M = own.shift_matrix(k, d_model)
    expect(list(getattr(M, "shape", [])), [d_model, d_model], given=f"the shape of shift_matrix({k}, {d_model})")
    return M.double() @ PE(pos, d_model)


def test_one_step(own: Program) -> None:
    """The matrix for k = 1 takes PE(0) to PE(1)."""
    expect(moved(own, 1, 4, 0), PE(1, 4), given="shift_matrix(1, 4) @ PE(0)", tolerance=1e-5)


def test_every_position(own: Program) -> None:
    """The same matrix does so for every position: it does not depend on pos."""
    for pos in (1, 2, 17, 1000):
        expect(moved(own, 5, 8, pos), PE(pos + 5, 8), given=f"shift_matrix(5, 8) @ PE({pos})", tolerance=1e-5)


def test_no_step(own: Program) -> None:
    """No step is the identity."""
    expect(own.shift_matrix(0, 4).double(), torch.eye(4).double(), given="shift_matrix(0, 4)", tolerance=1e-6)


def test_back(own: Program) -> None:
    """Steps go back as well: k = -3 takes PE(10) to PE(7)."""
    expect(moved(own, -3, 6, 10), PE(7, 6), given="shift_matrix(-3, 6) @ PE(10)", tolerance=1e-5)


def test_two_steps(own: Program) -> None:
    """Two steps of 2 and 3 are one of 5: the matrices multiply."""
    found = own.shift_matrix(2, 8).double() @ own.shift_matrix(3, 8).double()
    expect(found, own.shift_matrix(5, 8).double(), given="shift_matrix(2, 8) @ shift_matrix(3, 8)", tolerance=1e-5)


def test_rotation(own: Program) -> None:
    """It rotates each pair of dimensions, so no encoding becomes longer: M Mᵀ is the identity."""
    M = own.shift_matrix(7, 6).double()
    expect(M @ M.T, torch.eye(6).double(), given="M @ M.T with M = shift_matrix(7, 6)", tolerance=1e-5)


def test_width_of_the_paper(own: Program) -> None:
    """It works for the width of the paper, 512."""
    expect(moved(own, 20, 512, 33), PE(53, 512), given="shift_matrix(20, 512) @ PE(33)", tolerance=1e-4)
