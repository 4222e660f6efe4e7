"""Exercises: the hidden tests fail on what a learner starts from and on plausible mistakes, and pass on the solution."""

import difflib
import types

import pytest

from regard.learn.check import checked_events
from regard.learn.check_process import run_tests
from regard.learn.exercise_files import exercises
from regard.learn.sources import PACKAGE, read

NAMES = list(exercises())
BUGS = [name for name in NAMES if name.startswith("bug_")]
# Plausible mistakes: what the solution has, and what a learner might write.
MISTAKES = [
    ("attention", "softmax(scores, dim=-1)", "softmax(scores, dim=-2)"),
    ("attention", "math.sqrt(Q.size(-1))", "Q.size(-1)"),
    ("attention", " / math.sqrt(Q.size(-1))", ""),
    ("attention", "math.sqrt(Q.size(-1))", "math.sqrt(Q.size(-2))"),
    ("attention", "masked_fill(~mask, -math.inf)", "masked_fill(~mask, 0.0)"),
    ("attention", "masked_fill(~mask, -math.inf)", "masked_fill(mask, -math.inf)"),
    ("attention", "K.mT", "K.T"),
    ("attention", "torch.softmax(scores, dim=-1)", "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))"),
    ("attention", "if mask is not None:", "if mask is None:"),
    ("masks", ".tril()", ".tril(diagonal=-1)"),
    ("masks", ".tril()", ".tril(diagonal=1)"),
    ("masks", ".tril()", ".triu()"),
    ("masks", "torch.ones(n, n, dtype=torch.bool)", "torch.ones(n, n)"),
    ("masks", "ids != pad", "ids != 0"),
    ("masks", "ids != pad", "ids == pad"),
    ("masks", "[:, None, :]", "[:, :, None]"),
    ("masks", "padding_mask(ids, pad) & causal_mask", "padding_mask(ids, pad) | causal_mask"),
    ("masks", "padding_mask(ids, pad) & causal_mask(ids.size(1))", "causal_mask(ids.size(1))[None]"),
    ("positions", "dim=-1).flatten(1)", "dim=1).flatten(1)"),
    ("positions", "[angles.sin(), angles.cos()]", "[angles.cos(), angles.sin()]"),
    ("positions", "torch.arange(0, d_model, 2, dtype=torch.float64) / d_model", "torch.arange(d_model // 2) / d_model"),
    ("positions", "torch.arange(0, d_model, 2,", "torch.arange(2, d_model + 2, 2,"),
    ("positions", "10000 **", "1000 **"),
    ("positions", "torch.arange(length,", "torch.arange(1, length + 1,"),
    ("label_smoothing", "epsilon / V", "epsilon / (V - 1)"),
    ("label_smoothing", "(1 - epsilon) * ", ""),
    ("label_smoothing", " + epsilon / V", ""),
    ("label_smoothing", "losses[labels != pad].sum()", "losses.sum()"),
    ("label_smoothing", "losses[labels != pad].sum()", "losses[labels != pad].mean()"),
    ("label_smoothing", "logits.log_softmax(dim=-1)", "logits.softmax(dim=-1).log().clamp(min=-20)"),
    ("label_smoothing", "-(targets", "(targets"),
    ("label_smoothing", "dim=-1)).sum(dim=-1)", "dim=0)).sum(dim=-1)"),
    ("schedule", "min(", "max("),
    ("schedule", "d_model**-0.5", "d_model**0.5"),
    ("schedule", "d_model**-0.5 * ", ""),
    ("schedule", "warmup_steps**-1.5", "warmup_steps**-0.5"),
    ("schedule", "step_num * warmup", "(step_num - 1) * warmup"),
    ("multi_head", "x.unflatten(-1, (h, -1)).transpose(1, 2)", "x.reshape(x.size(0), h, x.size(1), -1)"),
    ("multi_head", "(h, -1)).transpose(1, 2)", "(-1, h)).permute(0, 3, 1, 2)"),
    ("multi_head", "heads.transpose(1, 2).flatten(2)", "heads.reshape(heads.size(0), heads.size(2), -1)"),
    ("multi_head", "math.sqrt(Q.size(-1))", "math.sqrt(x.size(-1))"),
    ("multi_head", " @ W_O", " @ W_O.T"),
    ("multi_head", "join_heads(weights @ V) @ W_O", "join_heads(weights @ V)"),
    ("multi_head", "dim=-1)\n", "dim=1)\n"),
    ("multi_head", "scores.masked_fill(~mask[:, None], -math.inf)", "scores"),
    ("beam_search", "((5 + length) / 6) **", "(5 + length) **"),
    ("beam_search", "total / penalty", "total"),
    ("beam_search", "total / penalty", "total * penalty"),
    ("beam_search", "(total + logp, ", "(logp, "),
    ("beam_search", "in running for token", "in running[:1] for token"),
    ("beam_search", "if one[1][-1] != eos][:beam]", "if one[1][-1] != eos]"),
    ("beam_search", "[one for one in extended if one[1][-1] != eos][:beam]", "extended[:beam]"),
    ("beam_search", "tokens[1:-1]", "tokens[1:]"),
    ("beam_search", "finished += [", "finished = ["),
    ("beam_search", "max(finished", "min(finished"),
    ("beam_search", "range(1, longest + 1)", "range(1, longest)"),
    ("beam_search", "if finished else running[0][1][1:]", "if finished else []"),
    ("beam_search", "reverse=True", "reverse=False"),
    ("shifted_positions", "k / 10000", "-k / 10000"),
    ("shifted_positions", "= -math.sin", "= math.sin"),
    ("shifted_positions", "two_i / d_model", "two_i / 2 / d_model"),
    ("shifted_positions", "math.cos(angle)", "1.0"),
    ("permutation", "layer(x[order]) - layer(x)[order]", "layer(x[order]) - layer(x)"),
    ("permutation", "layer(x[order]) - layer(x)[order]", "layer(x[order])[order] - layer(x)"),
    ("permutation", ".abs().max()", ".max()"),
    ("permutation", ".abs().max()", ".abs().mean()"),
    ("permutation", "P @ scores @ P.T", "P @ scores"),
    ("permutation", "P @ scores @ P.T", "P.T @ scores @ P"),
    ("permutation", "P @ weights @ P.T", "P @ weights"),
    ("permutation", "P @ weights @ values", "weights @ values"),
]


def checked(name, source):
    """The hidden tests of an exercise on a program."""
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return checked_events(name, [*run_tests(name, vars(module), f"{name}.py"), {"done": True}], "not ended")


def source_of(name, file):
    return read(f"src/regard/learn/exercises/{name}/{file}.py")


def test_every_folder_of_exercises_is_on_the_page():
    folders = {one.parent.name for one in (PACKAGE / "learn" / "exercises").glob("*/stub.py")}
    assert folders == set(NAMES)
    assert len(BUGS) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(name):
    check = checked(name, source_of(name, "solution"))
    assert check.passed, check.text()
    assert len(check.tests) >= 5
    assert all(test.sentence.endswith(".") for test in check.tests)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in BUGS])
def test_what_a_learner_starts_from_fails_every_test(name):
    check = checked(name, source_of(name, "stub"))
    assert {test.wrong for test in check.tests} == {"not written yet"}
    assert not check.passed


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_one_line_and_is_found(name):
    stub, solution = (source_of(name, file).splitlines()[1:] for file in ("stub", "solution"))
    changed = [line for line in difflib.ndiff(stub, solution) if line.startswith(("- ", "+ "))]
    assert [line[0] for line in changed] == ["-", "+"]
    check = checked(name, "\n".join(stub))
    assert not check.passed
    assert check.right > 0, "the tests of what is right pass"
    assert all("expected" in test.wrong and "found" in test.wrong for test in check.tests if test.wrong)


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_plausible_mistakes_are_found(name, right, wrong):
    source = source_of(name, "solution")
    assert right in source
    check = checked(name, source.replace(right, wrong, 1))
    assert not check.passed
    assert not [test.wrong for test in check.tests if test.wrong and "regard/" in test.wrong]


def test_a_mistake_is_reported_with_an_example_that_can_be_redone():
    check = checked("attention", source_of("attention", "solution").replace("math.sqrt(Q.size(-1))", "Q.size(-1)"))
    [wrong] = [test.wrong for test in check.tests if test.wrong]
    assert wrong.splitlines() == [
        "given    Q = [[(ln 3) / 4, 16 times]], K = [[1, 16 times], [0, 16 times]], V = [[1, 0], [0, 1]]",
        "expected [[0.75, 0.25]]",
        "found    [[0.5682, 0.4318]]",  # 3^(1/4) / (3^(1/4) + 1)
    ]
