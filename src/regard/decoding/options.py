"""Options of search in words, and those that would have no effect."""

from __future__ import annotations

from regard.config import SearchOptions
from regard.decoding.backend import Backend
from regard.errors import DecodeError

OF_SAMPLES = ("temperature", "top_k", "top_p", "epsilon", "seed")
# What models that output all tokens at once do not have.
TOKEN_BY_TOKEN = ("sample", "beam_groups", "no_repeat_ngram", "max_repeats", "min_length", "token_scores")
SHOWN = ("early_stopping", "beam_groups", "no_repeat_ngram", "max_repeats", "shortlist", "min_length", "max_length")


def refuse_without_effect(
    options: SearchOptions, recipe: SearchOptions, model: Backend, *, several: bool = False
) -> None:
    """Raise DecodeError if an option that differs from the recipe's would change nothing.

    `several` says whether another model chooses among hypotheses.
    """
    changed = {name for name in options.given if getattr(options, name) != getattr(recipe, name)}
    if model.non_autoregressive:
        for name in TOKEN_BY_TOKEN:
            if name in changed and getattr(options, name):
                raise DecodeError(f"this model outputs all tokens at once, without {name}; leave it out")
        return
    for name in OF_SAMPLES:
        if name in changed and not options.sample:
            raise DecodeError(f"{name} is an option of samples; set sample too, or leave it out")
    if "diversity_penalty" in changed and options.beam_groups == 1:
        raise DecodeError("diversity_penalty needs beam_groups of at least 2; set it too, or leave it out")
    chooses = [name for name in ("mbr", "coverage_penalty") if name in changed and getattr(options, name)]
    if options.beam == 1 and (chooses or several):
        what = chooses[0] if chooses else "another model"
        raise DecodeError(f"{what} chooses among hypotheses, and beam is 1; set it to 4, for example")


def describe_search(options: SearchOptions, *, rescorer: bool = False, reverse: bool = False, models: int = 1) -> str:
    """Return how outputs are searched for, in a few words: by how many models, and with which others."""
    plain = SearchOptions()
    kind = " by power" if options.length_penalty_kind == "power" else ""
    found = [f"beam {options.beam}, length penalty {options.length_penalty:g}{kind}" if options.beam > 1 else "greedy"]
    if options.sample:
        found = [f"{options.beam} samples"]
        found += [f"{name} {getattr(options, name):g}" for name in OF_SAMPLES if _differs(options, plain, name)]
    found += [f"{name} {str(getattr(options, name)).lower()}" for name in SHOWN if _differs(options, plain, name)]
    if models > 1:
        found.append(f"ensemble of {models}")
    if rescorer:
        found.append("rescored by another model")
    if reverse:
        found.append(f"reverse model at {options.reverse_weight:g}")
    if options.coverage_penalty:
        found.append(f"coverage penalty {options.coverage_penalty:g}")
    if options.mbr is not None:
        found.append(f"minimum Bayes risk by {options.mbr}")
    return ", ".join(found)


def _differs(options: SearchOptions, plain: SearchOptions, name: str) -> bool:
    return bool(getattr(options, name) != getattr(plain, name))
