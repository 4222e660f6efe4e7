"""Run every snippet in the README, in docs/ and in chapters with commands, in order."""

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.config import SearchOptions
from tests.commands import folder_of_command, python

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHAPTERS = [
    page
    for page in sorted((ROOT / "src" / "regard" / "learn" / "pages" / "en").glob("*.md"))
    if "```sh\n" in page.read_text(encoding="utf-8")
]
# A model that has hardly been trained continues to the longest output that is allowed.
SHORT_OUTPUT = "\n[decode]\nmax_extra = 2\n"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the kind and the text of every fenced block."""
    return FENCED.findall(page.read_text(encoding="utf-8"))


def small_files() -> list[str]:
    """Return the two blocks of docs/data.md that make parallel text and my.toml, which the other pages use."""
    section = (
        (ROOT / "docs" / "data.md").read_text(encoding="utf-8").split("## Small files to try the commands with")[1]
    )
    return [text for _, text in FENCED.findall(section)[:2]]


def readme_recipe(page: Path) -> str:
    """Return a README's recipe with few steps and a small model."""
    [text] = [text for kind, text in blocks(page) if kind == "toml"]
    assert "steps = 8000" in text
    assert 'preset = "tiny"' in text
    small = "width = 32\nnum_heads = 2\nnum_layers = 2\nhidden = 64"
    return text.replace('preset = "tiny"', small).replace("steps = 8000", "steps = 2\nthreads = 1") + SHORT_OUTPUT


def shortened(text: str, steps: int) -> str:
    """Return a snippet with few steps of training and few sentences to validate on: it must run, not reach a good score."""
    text = re.sub(r"\bsteps([= ])\d+", rf"steps\g<1>{steps}", text)
    in_python = f'"train.validate_pairs=4", "decode.max_extra=2", "train.steps={steps}"'
    text = text.replace(f'"train.steps={steps}"', in_python)
    text = text.replace(f" train.steps={steps}", f" train.validate_pairs=4 train.steps={steps}")
    # Recipes whose model searches for its output. The others would refuse the option.
    text = re.sub(r"\bregard train (copy|reverse|names|expressions)\b", r"\g<0> decode.max_extra=2", text)
    # In the file of a study.
    text = re.sub(r'^"train.steps" = \d+$', f'"decode.max_extra" = 2\n"train.steps" = {steps}', text, flags=re.M)
    text = re.sub(r'^"train.validate_pairs" = \d+$', '"train.validate_pairs" = 4', text, flags=re.M)
    # An ablation validates after every one of so few steps.
    return re.sub(rf"^(regard ablate [a-z ]+?)( --steps {steps}|$)", r"\1 --steps 2", text, flags=re.M)


# The snippets of README.zh.md are those of README.md, as another test asserts.
RUN = [page for page in [*PAGES, *CHAPTERS] if page.name != "README.zh.md"]


@pytest.fixture(scope="module")
def parallel_text(tmp_path_factory):
    """The folder in which the first block of small_files has run."""
    folder = tmp_path_factory.mktemp("text")
    result = python(small_files()[0], cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page, tmp_path, parallel_text):
    shutil.copytree(parallel_text, tmp_path, dirs_exist_ok=True)
    path = f"{folder_of_command()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}

    def run(kind: str, text: str) -> None:
        if kind == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
            result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        else:
            result = python(text, cwd=tmp_path, environment=environment, timeout=300)
        assert result.returncode == 0, f"{text}\n{result.stderr}"

    recipe = small_files()[1]
    # After four, no score of the adapted model is significantly lower, which would be refused.
    steps = 4 if page.name == "adapt.md" else 2
    if page.parent == ROOT:
        (tmp_path / "my.toml").write_text(readme_recipe(page), encoding="utf-8")
    elif page.name != "data.md":
        [written] = re.findall(r"^cat > my.toml <<'END'\n(.*?)^END$", recipe, flags=re.M | re.S)
        assert "\nsteps = 300\n" in written
        assert "warmup_steps = 50\n" in written
        # Few steps at low rates: after more at higher ones, a model may output nothing, which `regard adapt` refuses.
        small = written.replace("\nsteps = 300\n", f"\nsteps = {steps}\nthreads = 1\n")
        small += "" if page.name == "adapt.md" else SHORT_OUTPUT
        (tmp_path / "my.toml").write_text(small.replace("warmup_steps = 50\n", "warmup_steps = 2000\n"))
    of_others = [block for other in PAGES for block in blocks(other)] if page in CHAPTERS else []
    for kind, written in blocks(page):
        if (kind, written) in of_others:
            continue  # it runs with that page
        assert page in CHAPTERS or kind in ("sh", "python", "toml", "text"), (
            f"snippets of kind {kind!r} are not run by this test"
        )
        text = shortened(written, steps)
        if "--ray" in text and not importlib.util.find_spec("ray"):
            continue  # CI does not install this extra
        # The make targets run this test, so it must not run them.
        if kind in ("sh", "python") and not text.startswith("make "):
            run(kind, text)


def test_the_chinese_readme_has_the_snippets_and_numbers_of_the_english():
    """Comments may differ. Numbers stand in the same order in both tables."""
    english, chinese = (
        [(kind, re.sub(r"  +#.*", "", text)) for kind, text in blocks(ROOT / name)]
        for name in ("README.md", "README.zh.md")
    )
    assert english == chinese
    numbers = [
        re.findall(r"\d[\d.,]*\d", (ROOT / name).read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0])
        for name, heading in (("README.md", "## Numbers"), ("README.zh.md", "## 数字"))
    ]
    assert numbers[0] == numbers[1]


def test_the_table_of_search_options_is_that_of_the_code():
    """docs/decoding.md says where each option of search can be given."""
    pytest.importorskip("pydantic")
    from regard.cli.translate import translate
    from regard.serve.schema import TranslateRequest

    page = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
    table = page.split("| option of search |")[1].split("\n\n")[0].splitlines()[2:]
    given = {}
    for row in table:
        names, *places = (cell.strip() for cell in row.strip("|").split("|"))
        given |= {name: tuple(place != "no" for place in places) for name in re.findall(r"`(\w+)`", names)}
    arguments = set(inspect.signature(translate).parameters) | {"token_scores"}  # --json
    recipe = set(SearchOptions.__struct_fields__) - set(SearchOptions.per_call)
    assert given == {
        name: (name in arguments, name in recipe, name in TranslateRequest.model_fields)
        for name in SearchOptions.__struct_fields__
    }


def test_links_between_pages_are_valid():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
