"""What the exercise beam_search starts from."""

from collections.abc import Callable

# Takes the tokens so far, beginning with bos, and returns the log-probability of each possible next token.
Step = Callable[[list[int]], list[float]]


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + length) / 6)^alpha, as Wu et al. (2016) divide by. The length counts eos, and not bos."""
    raise NotImplementedError


def beam_search(step: Step, bos: int, eos: int, beam: int, longest: int, alpha: float) -> list[int]:
    """Return the best output that the search finds, without bos and eos."""
    raise NotImplementedError
