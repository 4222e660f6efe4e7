"""`regard learn` of a wheel, in an environment with the declared dependencies alone."""

import re
import tomllib

import pytest

from tests.exchange.engine_environments import ROOT, install_wheel, make_environment, run

pytestmark = pytest.mark.slow


def test_a_wheel_and_its_dependencies_build_the_site(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^\w-]", one)[0] for one in project["dependencies"]]
    python = make_environment(tmp_path / "env", *names)
    install_wheel(python, tmp_path / "dist")
    said = run(python, "-c", "from regard.cli import main; main()", "learn", "--out", tmp_path / "site", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    where = run(python, "-c", "import regard; print(regard.__file__)").stdout
    assert where.startswith(str(tmp_path))
    written = int(re.search(r"wrote (\d+) pages", said.stderr)[1])
    assert written == len(list((tmp_path / "site").rglob("*.html"))) > 100
    chapter = (tmp_path / "site" / "learn" / "3-2-attention.html").read_text(encoding="utf-8")
    assert "examples/paper.py" in chapter and "data-live=" in chapter
