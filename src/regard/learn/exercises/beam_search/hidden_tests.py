"""The hidden tests of the exercise beam_search, on models that are small tables of probabilities."""

from regard.learn.expecting import BOS, EOS, A, B, Program, expect, expect_that, table_model

GARDEN_PATH = {"": (0.0, 0.6, 0.4), "a": (0.5, 0.25, 0.25), "b": (0.95, 0.025, 0.025)}
TOLD = "p(a) = 0.6, p(b) = 0.4; then p(end | a) = 0.5, p(end | b) = 0.95"
# The output a has probability 0.36, and b b b has 0.3.
LONGER = {
    "": (0.0, 0.6, 0.4), "a": (0.6, 0.2, 0.2), "aa": (0.1, 0.45, 0.45), "ab": (0.1, 0.45, 0.45),
    "b": (0.0, 0.05, 0.95), "bb": (0.0, 0.1, 0.9), "bbb": (0.8772, 0.1, 0.0228),
}  # fmt: skip


def test_penalty(own: Program) -> None:
    """The length penalty is ((5 + length) / 6)^alpha: 1 for one token, 2 for seven with alpha = 1."""
    expect(own.length_penalty(1, 0.6), 1.0, given="length_penalty(1, alpha = 0.6)")
    expect(own.length_penalty(7, 1.0), 2.0, given="length_penalty(7, alpha = 1)")
    expect(own.length_penalty(19, 0.5), 2.0, given="length_penalty(19, alpha = 0.5)")


def test_greedy(own: Program) -> None:
    """A beam of 1 takes the likeliest token at each step."""
    expect(own.beam_search(table_model(GARDEN_PATH), BOS, EOS, 1, 5, 0.0), [A], given=f"beam = 1, {TOLD} (a is {A})")


def test_beam(own: Program) -> None:
    """A beam of 2 finds the likelier output behind a less likely first token."""
    expect(own.beam_search(table_model(GARDEN_PATH), BOS, EOS, 2, 5, 0.0), [B], given=f"beam = 2, {TOLD} (b is {B})")


def test_empty_output(own: Program) -> None:
    """An output may be empty: if the end is likeliest at once, nothing is left without bos and eos."""
    expect(own.beam_search(table_model({}), BOS, EOS, 2, 5, 0.0), [], given="beam = 2, p(end) = 0.8 at every step")


def test_finished_outputs_wait(own: Program) -> None:
    """An output that has ended is kept while the search continues, and wins if it stays the best."""
    table = {"": (0.5, 0.3, 0.2), "a": (0.1, 0.8, 0.1), "aa": (0.1, 0.8, 0.1)}
    found = own.beam_search(table_model(table, (0.1, 0.8, 0.1)), BOS, EOS, 2, 4, 0.0)
    expect(found, [], given="beam = 2, p(end) = 0.5 and p(a) = 0.3 at first, and p(a) = 0.8 later")


def test_longest(own: Program) -> None:
    """The search stops after `longest` tokens, and then returns the best output even if it has not ended."""
    found = own.beam_search(table_model({}, (0.0, 0.7, 0.3)), BOS, EOS, 2, 3, 0.6)
    expect(found, [A, A, A], given=f"a model that never ends, p(a) = 0.7, longest = 3 (a is {A})")


def test_without_penalty(own: Program) -> None:
    """With alpha = 0 the likeliest output wins, which is often the shorter one."""
    found = own.beam_search(table_model(LONGER), BOS, EOS, 3, 6, 0.0)
    expect(found, [A], given="p(a) = 0.36 and p(b b b) = 0.30 as complete outputs, alpha = 0")


def test_with_penalty(own: Program) -> None:
    """Scores are divided by the length penalty: with alpha = 1, ln 0.30 / (9/6) is better than ln 0.36 / (7/6)."""
    found = own.beam_search(table_model(LONGER), BOS, EOS, 3, 6, 1.0)
    expect(found, [B, B, B], given="p(a) = 0.36 and p(b b b) = 0.30 as complete outputs, alpha = 1")


def test_width(own: Program) -> None:
    """No step extends more than `beam` outputs: that is what makes it a beam search."""
    asked: dict[int, int] = {}
    step = table_model({}, (0.2, 0.5, 0.3))

    def counted(tokens: list[int]) -> list[float]:
        asked[len(tokens)] = asked.get(len(tokens), 0) + 1
        return step(tokens)

    own.beam_search(counted, BOS, EOS, 2, 6, 0.0)
    most = max(asked.values(), default=0)
    expect_that(0 < most <= 2, given="beam = 2", expected="at most 2 outputs extended per step", found=f"{most}")


def test_sums(own: Program) -> None:
    """An output is as good as all of its tokens together, not as its last one."""
    table = {"": (0.0, 0.9, 0.1), "a": (0.0, 0.6, 0.4), "b": (0.0, 0.01, 0.99)}
    found = own.beam_search(table_model(table, (1.0, 0.0, 0.0)), BOS, EOS, 2, 4, 0.0)
    expect(found, [A, A], given=f"p(a) = 0.9, p(a | a) = 0.6, p(b) = 0.1, p(b | b) = 0.99, then the end (a is {A})")
