"""What the exercise positions starts from."""

import torch
from torch import Tensor


def positional_encoding(length: int, d_model: int) -> Tensor:
    """Return the sinusoids of section 3.5: [length, d_model]."""
    raise NotImplementedError
