"""What the exercise bug_search starts from."""

from collections.abc import Callable

# Takes the tokens so far, beginning with bos, and returns the log-probability of each possible next token.
Step = Callable[[list[int]], list[float]]


def penalty(tokens: list[int], alpha: float) -> float:
    """Return what the score of an output is divided by; bos does not count (Wu et al. 2016)."""
    return float(((5 + len(tokens) - 1) / 6) ** alpha)


def extensions(step: Step, running: list[tuple[float, list[int]]]) -> list[tuple[float, list[int]]]:
    """Return all outputs that are one token longer, best first, each with its sum of log-probabilities."""
    longer = []
    for total, tokens in running:
        for token, logp in enumerate(step(tokens)):
            longer.append((total + logp, [*tokens, token]))
    return sorted(longer, key=lambda one: one[0], reverse=True)


def search(step: Step, *, bos: int, eos: int, beam: int, longest: int, alpha: float) -> list[int]:
    """Return the best output of a beam search, without bos and eos. One that is cut off at `longest` may win too."""
    running: list[tuple[float, list[int]]] = [(0.0, [bos])]
    scored: list[tuple[float, list[int]]] = []
    for _ in range(longest):
        longer = extensions(step, running)
        for total, tokens in longer[:beam]:
            if tokens[-1] == eos:
                scored.append((total / penalty(tokens, alpha), tokens))
        running = [(total, tokens) for total, tokens in longer if tokens[-1] != eos][:beam]
    scored += running
    _, best = max(scored, key=lambda one: one[0])
    return [token for token in best if token not in (bos, eos)]
