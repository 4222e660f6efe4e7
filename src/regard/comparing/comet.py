"""COMET (Rei et al. 2020): a score that a trained model gives a translation. Its package and its models are not ours.

A checkpoint of COMET can execute code when the package loads it, unlike the folders of regard.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, ConfigError, DataError, MissingExtra, pip_install
from regard.metrics.corpus_metrics import CorpusMetric, mean_metric
from regard.nn.device import pick_device

BATCH = 8  # sentences


def load_comet(checkpoint: Path) -> Any:
    """Return the model of a COMET checkpoint on disk. Nothing is downloaded by name."""
    if not checkpoint.is_file():
        raise DataError(f"there is no file {checkpoint}; --comet names the checkpoint of a COMET model, model.ckpt")
    try:
        comet = importlib.import_module("comet")
    except ImportError as error:
        raise MissingExtra(f"--comet needs the package 'comet': {pip_install('unbabel-comet')}") from error
    try:
        return comet.load_from_checkpoint(str(checkpoint))
    # The package raises all kinds of errors for a file that it cannot read.
    except Exception as error:
        raise CheckpointError(f"{checkpoint} cannot be loaded by the package 'comet': {error}") from error


def comet_metric(
    model: Any, checkpoint: Path, sources: Sequence[str] | None, references: Sequence[Sequence[str]], *, device: str
) -> CorpusMetric:
    """Return COMET with these sources and the first reference of each. A system's score is the mean of its sentences."""
    if sources is None:
        raise ConfigError("COMET reads the sources too; give them with --source")
    # All checkpoints are called model.ckpt; the folders around them have names.
    origin = "/".join(checkpoint.absolute().parts[-3:])
    gpus = int(pick_device(device).type == "cuda")

    def scores(outputs: Sequence[str]) -> list[float]:
        rows = zip(sources, outputs, references[0], strict=True)
        samples = [{"src": source, "mt": output, "ref": reference} for source, output, reference in rows]
        found = model.predict(samples, batch_size=BATCH, gpus=gpus, progress_bar=False).scores
        assert len(found) == len(outputs), (len(found), len(outputs))
        return [float(score) for score in found]

    return mean_metric("COMET", f"nrefs:1|model:{origin}", scores, decimals=4)
