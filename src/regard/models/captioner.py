"""A Transformer that reads an image: an encoder over patches of pixels, and the decoder of text.

The image is cut into square patches, and a linear layer turns the pixels of each into a vector (Dosovitskiy et al. 2021).
The position of a patch is the sum of two learned vectors, of its row and of its column. The decoder attends to patches as
it does to source words (Xu et al. 2015 attend to places of a convolutional network's output).

Shapes: M patches, P numbers of a patch, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.config import between
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.models.base import make_config
from regard.models.encoder_decoder import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn.device import stream_dtype
from regard.nn.linear import Linear
from regard.nn.positions import Positions


class CaptionerConfig(TransformerConfig, frozen=True):
    """An encoder of patches and a decoder. `positions` are those of the caption."""

    patch: int = 4  # pixels of a patch's side

    def check(self) -> None:
        super().check()
        between(self, 1, 64, "patch")
        if self.window is not None:
            raise ValueError("window is set, but patches in reading order are not neighbours; leave it out")
        if self.copy:
            raise ValueError("copy is set, but an image has no words to copy; leave it out")
        if not self.source_eos:
            raise ValueError("source_eos is false, but an image has no EOS to leave out; leave out the option")


class Captioner(Transformer):
    """Images of `height` x `width` pixels in, text out. A source holds the patches of each image, row by row."""

    config: CaptionerConfig

    def __init__(
        self,
        config: CaptionerConfig | None = None,
        *,
        image_height: int,
        image_width: int,
        target_size: int,
        **options: Any,
    ) -> None:
        config = make_config(CaptionerConfig, config, options)
        if image_height % config.patch or image_width % config.patch or not image_height * image_width:
            raise ConfigError(
                f"images of {image_height} x {image_width} pixels cannot be cut into patches of {config.patch} x "
                f"{config.patch}; choose a model.patch that divides both sides"
            )
        super().__init__(config, source_size=target_size, target_size=target_size)
        # There are no source tokens.
        self.source_embedding = self.target_embedding
        self.source_positions = Positions("none", config.width)
        rows, self.columns, D = image_height // config.patch, image_width // config.patch, config.width
        # Their sum has the variance of a scaled word embedding (section 3.4), so that places are as clear as pixels.
        self.row_positions = nn.Parameter(torch.empty(rows, D).normal_(std=0.5**0.5))
        self.column_positions = nn.Parameter(torch.empty(self.columns, D).normal_(std=0.5**0.5))
        self.patches = Linear(3 * config.patch**2, [D], bias=True, hidden=False)

    def encode(self, source: Ragged) -> Ragged:
        places_M = source.layout.positions
        x_MD: Tensor = self.patches(source.values.to(self.row_positions.dtype))
        x_MD = x_MD + self.row_positions.index_select(0, places_M // self.columns)
        x_MD = x_MD + self.column_positions.index_select(0, places_M % self.columns)
        return self._through_encoder(self.dropout(x_MD.to(stream_dtype(x_MD))), source.layout)
