"""`regard verify`: an export's files, versions and translations, compared with its certificate."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from regard.errors import CheckpointError
from regard.exchange.certificate import (
    CERTIFICATE,
    PAGE,
    Certificate,
    Measured,
    failures,
    load_certificate,
    record_file,
)
from regard.exchange.comparing import EngineRequest, ask_engine, compare
from regard.exchange.exporting import TARGETS
from regard.exchange.portable import END
from regard.messages import counted
from regard.storage.folder import Folder


class Verified(NamedTuple):
    """An export that agrees with its certificate."""

    certificate: Certificate
    measured: Measured  # here and now


def verify(path: Path | str, *, tell: Callable[[str], None] = lambda text: None) -> Verified:
    """Check an export against its certificate.

    Return the certificate, and what was measured now. Raise CheckpointError with one sentence if they do not fit. `tell`
    receives a sentence about each package of another version, and each file that the certificate does not list.
    """
    folder = Folder(path)
    if not folder.path.is_dir():
        raise CheckpointError(f"{path} is not a folder; give one that regard export --to wrote")
    certificate = load_certificate(folder)
    if certificate.target not in TARGETS:
        raise CheckpointError(
            f"{folder.path / CERTIFICATE} is for the engine {certificate.target[:80]!r}, unknown here"
        )
    _compare_files(folder, certificate, tell)
    TARGETS[certificate.target].require()
    _compare_versions(certificate, tell)
    lines, weights = certificate.lines, certificate.weights
    if not lines or any(len(line.scores) != len(line.tokens) + 1 for line in lines):
        raise CheckpointError(f"{folder.path / CERTIFICATE} is damaged: its lines and their scores do not fit")
    tell(f"translating {counted(len(lines), 'line')} with {certificate.target}")
    theirs = ask_engine(
        EngineRequest(
            engine=certificate.target,
            weights=weights,
            folder=str(folder.path.absolute()),
            lines=[line.source for line in lines],
            targets=[line.tokens for line in lines],
            symbols=certificate.symbols,
            start=certificate.start,
            end=END,
            limit=certificate.limit,
            threads=torch.get_num_threads(),
        )
    )
    measured = compare(lines, theirs, limit=certificate.limit)
    found = failures(measured, certificate.bounds)
    if found:
        raise CheckpointError(f"{certificate.target} does not agree with the certificate of {path}: {'; '.join(found)}")
    return Verified(certificate, measured)


def _compare_files(folder: Folder, certificate: Certificate, tell: Callable[[str], None]) -> None:
    """Raise CheckpointError for the first file that is not the one that was certified."""
    for name, expected in certificate.files.items():
        if not folder.has_file(name):
            raise CheckpointError(f"{folder.path / name} is missing; export the model again")
        if record_file(folder, name) != expected:
            raise CheckpointError(f"{folder.path / name} is not the file that was certified; export the model again")
    for name in sorted(set(folder.names()) - set(certificate.files) - {CERTIFICATE, PAGE}):
        tell(f"{folder.path / name} is not part of the certificate")


def _compare_versions(certificate: Certificate, tell: Callable[[str], None]) -> None:
    for name, version in certificate.versions.items():
        try:
            here = platform.python_version() if name == "python" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if here != version:
            tell(f"{name} is {here} here, and was {version} when the model was certified")
