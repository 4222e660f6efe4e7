"""What follows from the scores before and after: a sentence, and whether the model is accepted."""

from __future__ import annotations

from dataclasses import dataclass

from regard.adapting.comparing import ScoreChange, SetComparison
from regard.metrics.significance import ALPHA, describe_p


@dataclass(frozen=True)
class Verdict:
    """Whether the adapted model is accepted, and why, in a sentence."""

    accepted: bool
    text: str


def judge(domain: SetComparison, general: SetComparison | None, *, accept_loss: bool = False) -> Verdict:
    """Return the verdict. A model that is significantly worse on a test set, by BLEU or chrF, is not accepted."""
    gain, lost = _most_significant(domain, better=True), _most_significant(domain, better=False)
    if lost is not None:
        return Verdict(False, f"Not accepted: worse on the new text ({describe_change(lost)}).")
    best = domain.scores[0]
    found = (
        f"better on the new text ({describe_change(gain)})"
        if gain is not None
        else f"no significant gain on the new text ({describe_change(best)}); more text would help"
    )
    if general is None:
        return Verdict(True, f"Accepted: {found}; general text was not tested, because none was given.")
    loss = _most_significant(general, better=False)
    if loss is None:
        kept = f"no significant loss on general text ({describe_change(general.scores[0])})"
        return Verdict(True, f"Accepted: {found}; {kept}.")
    if accept_loss:
        return Verdict(True, f"Accepted with a loss: {found}; worse on general text ({describe_change(loss)}).")
    return Verdict(False, f"Not accepted: worse on general text ({describe_change(loss)}); {found}.")


def describe_change(change: ScoreChange) -> str:
    """Return a change in words, as in "BLEU 20.1 to 25.3, p = 0.0001"."""
    return f"{change.metric} {change.before:.1f} to {change.after:.1f}, {describe_p(change.p)}"


def _most_significant(tested: SetComparison, *, better: bool) -> ScoreChange | None:
    """Return the score that changed most significantly in one direction; None if none did."""
    found = [one for one in tested.scores if one.p < ALPHA and (one.change > 0) == better and one.change != 0]
    return min(found, key=lambda one: one.p, default=None)
