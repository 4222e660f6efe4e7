"""A solution of the exercise beam_search."""

from collections.abc import Callable

# Takes the tokens so far, beginning with bos, and returns the log-probability of each possible next token.
Step = Callable[[list[int]], list[float]]


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + length) / 6)^alpha, as Wu et al. (2016) divide by. The length counts eos, and not bos."""
    return float(((5 + length) / 6) ** alpha)


def beam_search(step: Step, bos: int, eos: int, beam: int, longest: int, alpha: float) -> list[int]:
    """Return the best output that the search finds, without bos and eos."""
    running, finished = [(0.0, [bos])], []
    for length in range(1, longest + 1):
        extended = [
            (total + logp, [*tokens, token]) for total, tokens in running for token, logp in enumerate(step(tokens))
        ]
        extended.sort(key=lambda one: one[0], reverse=True)
        penalty = length_penalty(length, alpha)
        finished += [(total / penalty, tokens[1:-1]) for total, tokens in extended[:beam] if tokens[-1] == eos]
        running = [one for one in extended if one[1][-1] != eos][:beam]
        if len(finished) >= beam:
            break
    return max(finished, key=lambda one: one[0])[1] if finished else running[0][1][1:]
