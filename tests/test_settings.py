"""docs/settings.md says what the structs say."""

import importlib.util
import re
from pathlib import Path

import pytest

from regard.config import Bitext, DataConfig, EvaluateConfig, Recipe, SearchOptions, TokenizerConfig, TrainConfig

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("settings", ROOT / "scripts" / "settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(script):
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == script.page(), "the structs have changed; run: python scripts/settings.py"


@pytest.mark.parametrize(
    "struct", [Recipe, DataConfig, Bitext, TokenizerConfig, TrainConfig, SearchOptions, EvaluateConfig]
)
def test_every_key_has_a_meaning(script, struct):
    keys = {name for name in struct.__struct_fields__ if name not in struct.per_call}
    assert keys - script.comments(struct).keys() == set()


def test_types_and_defaults_are_those_of_toml(script):
    lines = script.section("t", TrainConfig)
    assert any(
        line.startswith('| `tokens` | integer or `"auto"` | `25000` | per side and micro-batch') for line in lines
    )
    assert any(line.startswith("| `lr` | number | unset | peak learning rate") for line in lines)
    assert any(line.startswith("| `betas` | [number, number] | `[0.9, 0.98]` |") for line in lines)
    assert any(line.startswith("| `beam` | integer | `4` |") for line in script.section("d", SearchOptions))


def test_the_guide_and_the_command_point_to_the_page():
    assert "(settings.md)" in (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    help_text = (ROOT / "src" / "regard" / "cli" / "train.py").read_text(encoding="utf-8")
    assert re.search(r"docs/settings\.md", help_text)
