"""The hidden tests of the exercise bug_search, on models that are small tables of probabilities."""

from regard.learn.expecting import BOS, EOS, A, B, Program, expect, table_model

# The output a has probability 0.3; b b b, which has not ended, 0.32.
CUT = {"": (0.0, 0.6, 0.4), "a": (0.5, 0.25, 0.25), "b": (0.0, 0.1, 0.9), "bb": (0.0, 0.1112, 0.8888)}


def test_greedy(own: Program) -> None:
    """A beam of 1 takes the likeliest token at each step."""
    found = own.search(table_model({}, (0.1, 0.6, 0.3)), bos=BOS, eos=EOS, beam=1, longest=2, alpha=0.0)
    expect(found, [A, A], given=f"beam = 1, longest = 2, p(a) = 0.6 at every step (a is {A})")


def test_beam(own: Program) -> None:
    """A beam of 2 finds the likelier output behind a less likely first token."""
    table = {"": (0.0, 0.6, 0.4), "a": (0.5, 0.25, 0.25), "b": (0.95, 0.025, 0.025)}
    found = own.search(table_model(table), bos=BOS, eos=EOS, beam=2, longest=5, alpha=0.0)
    given = f"beam = 2, p(a) = 0.6, p(b) = 0.4; then p(end | a) = 0.5, p(end | b) = 0.95 (b is {B})"
    expect(found, [B], given=given)


def test_without_penalty(own: Program) -> None:
    """Without a penalty the output with the largest sum of log-probabilities wins, ended or not."""
    found = own.search(table_model(CUT), bos=BOS, eos=EOS, beam=2, longest=3, alpha=0.0)
    expect(found, [B, B, B], given=f"p(a and the end) = 0.3, p(b b b) = 0.32, longest = 3, alpha = 0 (b is {B})")


def test_one_scale(own: Program) -> None:
    """All outputs are compared on one scale: ln 0.32 / (8/6) = -0.85 is better than ln 0.3 / (7/6) = -1.03."""
    found = own.search(table_model(CUT), bos=BOS, eos=EOS, beam=2, longest=3, alpha=1.0)
    expect(found, [B, B, B], given=f"p(a and the end) = 0.3, p(b b b) = 0.32, longest = 3, alpha = 1 (b is {B})")


def test_penalty_counts(own: Program) -> None:
    """The length is that of the tokens behind bos, eos included: 7 of them with alpha = 1 are divided by 2."""
    expect(own.penalty([BOS, A, A, A, A, A, A, EOS], 1.0), 2.0, given="six words and eos behind bos, alpha = 1")
