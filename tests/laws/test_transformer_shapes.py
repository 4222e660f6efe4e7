"""The shapes of a Transformer's weights that are known without torch are those of the model."""

import pytest

from regard.config.transformer import PRESETS, TransformerConfig
from regard.config.transformer_shapes import transformer_shapes
from regard.models import expected_shapes
from regard.toml import with_preset
from tests.laws.conftest import SMALL, VARIANTS

OPTIONS = {**VARIANTS["transformer"], **{name: {"preset": name} for name in PRESETS}}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "copy"])
def test_shapes_without_torch_are_those_of_the_model(name):
    table = OPTIONS[name] if "preset" in OPTIONS[name] else {**SMALL["transformer"], **OPTIONS[name]}
    sizes = {"source_size": 20 if table.get("tie", "all") == "all" else 24, "target_size": 20}
    found = transformer_shapes(with_preset(TransformerConfig, table, PRESETS, where="model"), **sizes)
    assert found == {
        name: tuple(shape) for name, shape in expected_shapes({"kind": "transformer", **table}, **sizes).items()
    }
