"""The certificate of an export: what was compared, how closely the target engine agrees with us, and hashes of all files."""

from __future__ import annotations

import hashlib

import msgspec

from regard.config import Struct
from regard.errors import CheckpointError
from regard.messages import counted
from regard.storage.folder import Folder

CERTIFICATE, PAGE = "certificate.json", "certificate.md"
FORM = 1  # of the certificate
MAX_BYTES = 64 * 2**20


class Bounds(Struct, frozen=True, kw_only=True):
    """What the differences between an engine and ours must not exceed."""

    logit: float  # the largest difference of a logit
    score: float  # the largest difference of a token's log-probability
    mean_score: float  # the mean difference of a token's log-probability
    identical: float  # the smallest share of identical greedy translations


# float32: engines add numbers in another order, and a tie may fall the other way. Fewer bits: the model is another one.
BOUNDS = {
    "float32": Bounds(logit=0.01, score=0.01, mean_score=0.001, identical=0.98),
    "float16": Bounds(logit=0.05, score=0.05, mean_score=0.002, identical=0.95),
    "int8": Bounds(logit=1.5, score=1.5, mean_score=0.04, identical=0.8),
}


class Measured(Struct, frozen=True, kw_only=True):
    """How closely an engine agrees with us. None: the engine does not give it, or there are no references."""

    lines: int
    tokens: int  # of our greedy translations, EOS included
    logit: float | None = None  # the largest difference, over the lines whose logits were compared
    logit_lines: int = 0
    score: float
    mean_score: float
    identical: float  # share of identical greedy translations, token by token
    identical_beams: float | None = None  # the same for beam search, with the length penalty n^alpha
    beam: int | None = None
    bleu_ours: float | None = None
    bleu_theirs: float | None = None
    lines_per_second_ours: float | None = None
    lines_per_second_theirs: float


class FileRecord(Struct, frozen=True, kw_only=True):
    bytes: int
    sha256: str


class Line(Struct, frozen=True, kw_only=True):
    """A held-out line, and our greedy translation of it."""

    source: str
    reference: str | None = None
    output: str
    tokens: list[str]
    scores: list[float]  # our log-probability of each token, and of EOS


class Certificate(Struct, frozen=True, kw_only=True):
    """certificate.json."""

    form: int
    model: str
    target: str
    weights: str
    start: str  # the symbol that outputs begin with, and that is never output
    versions: dict[str, str]
    threads: int
    lines_from: str
    limit: int  # the most tokens of an output
    symbols: list[str]  # of the target vocabulary
    bounds: Bounds
    measured: Measured
    files: dict[str, FileRecord]
    lines: list[Line]


def failures(measured: Measured, bounds: Bounds) -> list[str]:
    """Return what exceeds the bounds, in words."""
    found = []
    if measured.logit is not None and not measured.logit <= bounds.logit:
        found.append(f"logits differ by up to {measured.logit:.3g} (bound {bounds.logit:g})")
    if not measured.score <= bounds.score:
        found.append(f"log-probabilities of tokens differ by up to {measured.score:.3g} (bound {bounds.score:g})")
    if not measured.mean_score <= bounds.mean_score:
        found.append(
            f"log-probabilities of tokens differ by {measured.mean_score:.3g} on average (bound {bounds.mean_score:g})"
        )
    if measured.identical < bounds.identical:
        found.append(f"{measured.identical:.1%} of the translations are identical (bound {bounds.identical:.0%})")
    return found


def record_files(folder: Folder) -> dict[str, FileRecord]:
    """Return the size and hash of every file of a folder but the certificate."""
    return {name: record_file(folder, name) for name in sorted(folder.names()) if name not in (CERTIFICATE, PAGE)}


def record_file(folder: Folder, name: str) -> FileRecord:
    with folder.open_file(name) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(bytes=folder.file_size(name), sha256=digest)


def load_certificate(folder: Folder) -> Certificate:
    """Return the certificate of a folder, which may come from a stranger."""
    if not folder.has_file(CERTIFICATE):
        raise CheckpointError(f"{folder} has no {CERTIFICATE}; give a folder that regard export --to wrote")
    found = folder.load_struct(CERTIFICATE, Certificate, limit=MAX_BYTES)
    if found.form != FORM:
        raise CheckpointError(f"{folder.path / CERTIFICATE} is of the form {found.form}; this version reads {FORM}")
    return found


def write_certificate(folder: Folder, certificate: Certificate) -> None:
    """Write the certificate as JSON and as a page."""
    folder.save_bytes(CERTIFICATE, msgspec.json.format(msgspec.json.encode(certificate), indent=1))
    folder.save_text(PAGE, page(certificate))


def rows_of(measured: Measured, bounds: Bounds) -> list[tuple[str, str, str]]:
    """Return what was measured, with its bound: name, value and bound of each."""
    rows = [
        ("held-out lines", f"{measured.lines}, {counted(measured.tokens, 'token')}", ""),
        ("largest difference of a logit", f"{measured.logit:.2g}", f"{bounds.logit:g}")
        if measured.logit is not None
        else ("largest difference of a logit", "not compared", ""),
        ("largest difference of a token's log-probability", f"{measured.score:.2g}", f"{bounds.score:g}"),
        ("mean difference of a token's log-probability", f"{measured.mean_score:.2g}", f"{bounds.mean_score:g}"),
        ("identical greedy translations", f"{measured.identical:.1%}", f"at least {bounds.identical:.0%}"),
    ]
    if measured.identical_beams is not None:
        rows.append((f"identical translations, beam {measured.beam}", f"{measured.identical_beams:.1%}", ""))
    if measured.bleu_ours is not None and measured.bleu_theirs is not None:
        rows.append(("BLEU, regard / engine", f"{measured.bleu_ours:.2f} / {measured.bleu_theirs:.2f}", ""))
    theirs = f"{measured.lines_per_second_theirs:.0f}"
    if measured.lines_per_second_ours is None:
        return [*rows, ("lines per second, greedy, engine", theirs, "")]
    return [
        *rows,
        ("lines per second, greedy, regard / engine", f"{measured.lines_per_second_ours:.0f} / {theirs}", ""),
    ]


def page(certificate: Certificate) -> str:
    """Return the certificate as Markdown."""
    rows = rows_of(certificate.measured, certificate.bounds)
    parts = [
        f"# {certificate.model} for {certificate.target}, {certificate.weights}",
        "The engine ran in a process that cannot import regard. `regard verify FOLDER` repeats the comparison. "
        f"Lines: {_plain(certificate.lines_from)}. Threads: {certificate.threads}.",
        "| | measured | bound |\n|---|---|---|\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows),
        "## Versions",
        "\n".join(f"- {name} {version}" for name, version in certificate.versions.items()),
        "## Files",
        "| file | bytes | SHA-256 |\n|---|---|---|\n"
        + "\n".join(f"| {name} | {one.bytes:,} | `{one.sha256}` |" for name, one in certificate.files.items()),
        "## Translations",
        "\n".join(f"- {_plain(line.source)} → {_plain(line.output)}" for line in certificate.lines[:5]),
    ]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Return a text without characters that Markdown reads."""
    return "".join(f"\\{one}" if one in r"\`*_[]<>|#" else one for one in text)
