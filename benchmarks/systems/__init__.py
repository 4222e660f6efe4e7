"""The table of systems: the class of each, the packages it requires, and its constructor options.

A class has `prepare(setup, job) -> number of parameters` and `collate(batches)`, and for the jobs that it knows
`train_round(collated) -> seconds, mean loss` or `decode_round(collated, beam) -> seconds, ids of every output`.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    where: str
    requires: tuple[str, ...]
    jobs: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


TORCH = ("torch",)
HUGGING_FACE = ("torch", "transformers")
ENGINE = ("torch", "transformers", "ctranslate2")  # the engine uses the weights of the Hugging Face peer
TRAIN, DECODE = ("train",), ("decode",)

SYSTEMS = {
    "ours": Entry("systems.ours:Ours", ("torch", "regard"), TRAIN + DECODE),
    "engine": Entry("systems.engine:Engine", ("regard",), DECODE),
    "engine_int8": Entry("systems.engine:Engine", ("regard",), DECODE, {"int8": True}),
    "engine_parallel": Entry("systems.engine:Engine", ("regard",), DECODE, {"parallel": True}),
    "engine_int8_parallel": Entry("systems.engine:Engine", ("regard",), DECODE, {"int8": True, "parallel": True}),
    "nn_transformer": Entry("systems.nn_transformer:NnTransformer", TORCH, TRAIN),
    "marian": Entry("systems.marian:Marian", HUGGING_FACE, TRAIN + DECODE),
    "nn_transformer_compiled": Entry("systems.nn_transformer:NnTransformer", TORCH, TRAIN, {"compiled": True}),
    "marian_compiled": Entry("systems.marian:Marian", HUGGING_FACE, TRAIN, {"compiled": True}),
    "marian_parallel": Entry("systems.marian:Marian", HUGGING_FACE, DECODE, {"parallel": True}),
    "ctranslate2": Entry("systems.ct2:CTranslate2", ENGINE, DECODE),
    "ctranslate2_int8": Entry("systems.ct2:CTranslate2", ENGINE, DECODE, {"int8": True}),
    "ctranslate2_parallel": Entry("systems.ct2:CTranslate2", ENGINE, DECODE, {"parallel": True}),
    "ctranslate2_int8_parallel": Entry("systems.ct2:CTranslate2", ENGINE, DECODE, {"int8": True, "parallel": True}),
    # Other families, each paired with a plain implementation; selected by name.
    "ours_rnn": Entry("systems.ours:Ours", ("torch", "regard"), TRAIN, {"family": "rnn"}),
    "plain_lstm": Entry("systems.plain:Plain", TORCH, TRAIN, {"family": "rnn"}),
    "ours_convs2s": Entry("systems.ours:Ours", ("torch", "regard"), TRAIN, {"family": "convs2s"}),
    "plain_convs2s": Entry("systems.plain:Plain", TORCH, TRAIN, {"family": "convs2s"}),
    "ours_window": Entry("systems.ours:Ours", ("torch", "regard"), TRAIN, {"family": "window"}),
    "nn_transformer_window": Entry("systems.nn_transformer:NnTransformer", TORCH, TRAIN, {"family": "window"}),
}


def systems_for(job: str, *, compiled: bool) -> list[str]:
    """Return the names of the systems that support the job, including compiled ones if `compiled`."""
    return [
        name
        for name, entry in SYSTEMS.items()
        if job in entry.jobs and (compiled or not entry.options.get("compiled")) and "family" not in entry.options
    ]
