"""Sequence-to-sequence with attention, from parallel text to a trained, measured and explained model.

    import regard
    regard.train("dates", out="runs/dates")
    regard.load("runs/dates").translate(["samedi 14 novembre 2026"])
    regard.evaluate("runs/dates")

The verbs, each explained by help(regard.train) and so on; docs/library.md has examples:

    train       Train a recipe into a run folder, or resume the unfinished run in it.
    load        Return a predictor for a run: its final weights, or the newest checkpoint while training lasts.
    evaluate    Score a run on its recipe's test sets, or on the files given.
    compare     Compare systems on the same sentences: BLEU, chrF and TER, with intervals and paired tests against the first
                one.
    look        Return what a run's model did with one input: tokens, attention weights, probabilities, and other outputs.
    card        Write a run's card, with its test scores unless `evaluated` is False, and return its path.
    calibrate   Fit a temperature to a run's dev set, measure it on its test sets, and write both to calibration.json.
    align       Return the words of each pair and the links between them, learnt from these pairs alone.
    make_shortlist  Learn the likely translations of each token, and write them to shortlist.json in the run folder.
    adapt       Adapt a translation run to text of one domain, and measure what it gains and loses.
    run_study   Train and score every cell of a study that has not ended, and return its state.
    export      Copy what prediction needs, and the card, to a new folder.
    import_model  Read a model of another toolkit, and write it as a run folder.
    export_model  Write a run's model as a folder of another engine, and return its certificate.
    export_page  Write a run's model as one HTML file, and return its path.
    verify      Check an export against its certificate.
    load_model  Return a run's model as a plain module, in evaluation mode: trainable, and not laid out for search.
    search      Return the `nbest` best outputs for each source sentence (of text, ending in EOS), best first.

Everything in `regard.__all__`, which dir(regard) shows, is public; `regard.nn` holds the layers. Importing regard changes
nothing in the process, and imports torch only when a name that needs it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.messages import RegardWarning

if TYPE_CHECKING:
    from regard import nn as nn
    from regard.adapting.adapt import adapt as adapt
    from regard.aligning import align as align
    from regard.aligning import make_shortlist as make_shortlist
    from regard.api import (
        card as card,
    )
    from regard.api import (
        export as export,
    )
    from regard.api import (
        train as train,
    )
    from regard.calibrating import calibrate as calibrate
    from regard.comparing.compare import compare as compare
    from regard.config import EvaluateConfig as EvaluateConfig
    from regard.config import SearchOptions as SearchOptions
    from regard.config import Struct as Struct
    from regard.config import TrainConfig as TrainConfig
    from regard.data.batch import Batch as Batch
    from regard.data.batch import collate_pairs as collate_pairs
    from regard.data.batch import gather_rows as gather_rows
    from regard.data.batch import make_batch as make_batch
    from regard.data.batch_sampler import Loader as Loader
    from regard.data.batch_sampler import Position as Position
    from regard.data.columns import Column as Column
    from regard.data.columns import Columns as Columns
    from regard.data.columns import Indices as Indices
    from regard.data.columns import pair_columns as pair_columns
    from regard.data.ragged import Layout as Layout
    from regard.data.ragged import Ragged as Ragged
    from regard.decoding.requests import Request as Request
    from regard.decoding.search import search as search
    from regard.decoding.translator import Translator as Translator
    from regard.evaluating import evaluate as evaluate
    from regard.exchange.exporting import export_model as export_model
    from regard.exchange.importing import import_model as import_model
    from regard.exchange.to_web import export_page as export_page
    from regard.exchange.verifying import verify as verify
    from regard.loading import load as load
    from regard.looking import look as look
    from regard.metrics import Metric as Metric
    from regard.metrics import register_metric as register_metric
    from regard.models import Family as Family
    from regard.models import register_model as register_model
    from regard.models.base import Model as Model
    from regard.models.base import make_config as make_config
    from regard.models.bytenet import ByteNet as ByteNet
    from regard.models.captioner import Captioner as Captioner
    from regard.models.cmlm import Cmlm as Cmlm
    from regard.models.convs2s import ConvS2S as ConvS2S
    from regard.models.ctc import Ctc as Ctc
    from regard.models.han import Han as Han
    from regard.models.masked_lm import MaskedLm as MaskedLm
    from regard.models.nat import Nat as Nat
    from regard.models.pointer import Pointer as Pointer
    from regard.models.rnn import Rnn as Rnn
    from regard.models.tagger import Classifier as Classifier
    from regard.models.tagger import Tagger as Tagger
    from regard.models.transformer import Transformer as Transformer
    from regard.storage.folder import Folder as Folder
    from regard.study.running.runner import run_study as run_study
    from regard.tasks import register_task as register_task
    from regard.tasks.base import Task as Task
    from regard.tasks.corpus import TrainingData as TrainingData
    from regard.text.corpus import Pair as Pair
    from regard.text.tokenizer import TokenizerKind as TokenizerKind
    from regard.text.tokenizer import register_tokenizer as register_tokenizer
    from regard.text.tokenizer import train_tokenizer as train_tokenizer
    from regard.text.tokenizer_pair import train_tokenizers as train_tokenizers
    from regard.torch_loading import load_model as load_model
    from regard.training.trainer import Trainer as Trainer

__version__ = "0.1.0"

# Public names, by the module that defines them.
_PUBLIC = {
    "regard.adapting.adapt": ("adapt",),
    "regard.api": ("card", "export", "train"),
    "regard.aligning": ("align", "make_shortlist"),
    "regard.calibrating": ("calibrate",),
    "regard.comparing.compare": ("compare",),
    "regard.config": ("EvaluateConfig", "SearchOptions", "Struct", "TrainConfig"),
    "regard.data.batch": ("Batch", "collate_pairs", "gather_rows", "make_batch"),
    "regard.data.batch_sampler": ("Loader", "Position"),
    "regard.data.columns": ("Column", "Columns", "Indices", "pair_columns"),
    "regard.data.ragged": ("Layout", "Ragged"),
    "regard.decoding.requests": ("Request",),
    "regard.decoding.search": ("search",),
    "regard.decoding.translator": ("Translator",),
    "regard.evaluating": ("evaluate",),
    "regard.exchange.exporting": ("export_model",),
    "regard.exchange.to_web": ("export_page",),
    "regard.exchange.importing": ("import_model",),
    "regard.exchange.verifying": ("verify",),
    "regard.loading": ("load",),
    "regard.looking": ("look",),
    "regard.torch_loading": ("load_model",),
    "regard.metrics": ("Metric", "register_metric"),
    "regard.models": ("Family", "register_model"),
    "regard.models.base": ("Model", "make_config"),
    "regard.models.bytenet": ("ByteNet",),
    "regard.models.captioner": ("Captioner",),
    "regard.models.cmlm": ("Cmlm",),
    "regard.models.convs2s": ("ConvS2S",),
    "regard.models.ctc": ("Ctc",),
    "regard.models.han": ("Han",),
    "regard.models.nat": ("Nat",),
    "regard.models.pointer": ("Pointer",),
    "regard.models.rnn": ("Rnn",),
    "regard.models.masked_lm": ("MaskedLm",),
    "regard.models.tagger": ("Classifier", "Tagger"),
    "regard.models.transformer": ("Transformer",),
    "regard.storage.folder": ("Folder",),
    "regard.study.running.runner": ("run_study",),
    "regard.tasks": ("register_task",),
    "regard.tasks.base": ("Task",),
    "regard.tasks.corpus": ("TrainingData",),
    "regard.text.corpus": ("Pair",),
    "regard.text.tokenizer": ("TokenizerKind", "register_tokenizer", "train_tokenizer"),
    "regard.text.tokenizer_pair": ("train_tokenizers",),
    "regard.training.trainer": ("Trainer",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = ["RegardError", "RegardWarning", "__version__", "nn", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "nn":
        return importlib.import_module("regard.nn")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
