"""Training takes the steps that version 0.1 takes, bit for bit: losses and gradient norms of the first steps."""

import json

import pytest

import regard
from tests.compatibility.recorded import FIXTURES, read, this_processor

RECORDED = read("losses.json")


@pytest.mark.slow(unless=["transformer-1"])
@pytest.mark.parametrize("num_threads", ["1", "2"])
@pytest.mark.parametrize("name", RECORDED["losses"])
def test_losses_and_gradient_norms_are_those_of_0_1(name, num_threads, tmp_path, threads):
    if this_processor() != RECORDED["processor"]:
        pytest.skip(f"bits depend on the processor; recorded on {RECORDED['processor']}, this is {this_processor()}")
    threads(int(num_threads))  # restored after this test
    recipe, overrides = RECORDED["recipes"][name]
    recipe = str(FIXTURES / recipe) if recipe.endswith(".toml") else recipe
    settings = [*RECORDED["settings"], *overrides, f"train.threads={num_threads}"]
    log = regard.train(recipe, out=tmp_path / "run", overrides=settings).run.read_log()
    found = [[event["loss"], event["gradient_norm"]] for event in log if event["event"] == "progress"]
    assert json.dumps(found) == json.dumps(RECORDED["losses"][name][num_threads])
