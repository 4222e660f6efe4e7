"""Vectors of words from their characters: a convolution over the characters, then the maximum (Ma and Hovy 2016).

A word is a row of character ids of a fixed length, so shapes are static. Id 0 is a place without a character.

Shapes: N words, W characters of a word, C width of a character, F filters, D width of a word.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.linear import Linear

REACH = 2  # characters on each side that a filter sees


class Spelling(nn.Module):
    """A vector for each word, from its characters."""

    def __init__(self, num_characters: int, character_width: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(num_characters, character_width).normal_())
        filters = 4 * character_width
        self.filters = Linear((2 * REACH + 1) * character_width, [filters], bias=True)
        self.output = Linear(filters, [width], bias=True)

    def forward(self, characters_NW: Tensor) -> Tensor:
        """Return the vectors, [N, D]. Negative ids, of dummy words, are no characters."""
        N, W = characters_NW.shape
        there_NW1 = (characters_NW > 0)[:, :, None]
        x_NWC = F.embedding(characters_NW.clamp(min=0), self.embedding) * there_NW1
        # Filters see zeros on both sides of a word, so they can tell its beginning and its end.
        around_NWC = F.pad(x_NWC, (0, 0, REACH, REACH))
        windows = torch.cat([around_NWC[:, by : by + W] for by in range(2 * REACH + 1)], dim=-1)
        found_NWF = torch.relu(self.filters(windows.flatten(0, 1))).view(N, W, -1) * there_NW1
        vectors_ND: Tensor = self.output(found_NWF.amax(dim=1))
        return vectors_ND
