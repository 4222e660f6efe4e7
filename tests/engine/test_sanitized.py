"""The engine with damaged weights, absurd sizes and random options, under sanitizers."""

import subprocess

import pytest

from regard.engine import build
from tests.engine.sanitized import compile_target, run_target


def can_sanitize(tmp_path, kind):
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    try:
        command = [
            *build.find_compiler(),
            f"-fsanitize={kind}",
            str(tmp_path / "empty.c"),
            "-o",
            str(tmp_path / "empty"),
        ]
    except build.BuildError:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_no_input_makes_the_engine_misbehave(tmp_path, kind):
    if not can_sanitize(tmp_path, kind):
        pytest.skip(f"this compiler has no -fsanitize={kind}")
    done = run_target(compile_target(tmp_path, kind), seconds=600, seed=1, cases=60)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stdout == "60 cases\n"
