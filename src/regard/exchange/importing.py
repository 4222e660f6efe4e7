"""`regard import`: which toolkit a folder comes from, and its model as a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, RegardError
from regard.exchange import ctranslate2, fairseq, huggingface, marian, opennmt
from regard.exchange.imported import Imported, Tell, model_name, write_run
from regard.run.folder import RunFolder
from regard.storage.folder import Folder


class Format(NamedTuple):
    """A kind of folder that is imported."""

    name: str
    files: str  # what such a folder has, for messages
    fits: Callable[[Folder], bool]
    read: Callable[[Folder, Tell], Imported]


FORMATS = [
    Format(huggingface.FORMAT, "config.json, vocab.json and source.spm", huggingface.fits, huggingface.read),
    Format(ctranslate2.FORMAT, "config.json, model.bin and vocabularies", ctranslate2.fits, ctranslate2.read),
    Format(marian.FORMAT, "one .npz and its vocabulary", marian.fits, marian.read),
    Format(fairseq.FORMAT, "a .pt file and dict.LANGUAGE.txt of both languages", fairseq.fits, fairseq.read),
    Format(opennmt.FORMAT, "one .pt file", opennmt.fits, opennmt.read),
]


def import_model(folder: Path | str, out: Path | str | None = None, *, tell: Tell = lambda text: None) -> RunFolder:
    """Read a model of another toolkit, and write it as a run folder.

    `folder` is one of those in docs/import.md, `out` the new run (default: runs/NAME, where NAME is that of the folder).
    `tell` receives a sentence about each thing that takes long. What the model needs and ours cannot express is refused by
    name, before anything is written.
    """
    source = Folder(folder)
    if not source.path.is_dir():
        raise ConfigError(f"{folder} is not a folder; give the one that holds the files of a model")
    found = next((one for one in FORMATS if one.fits(source)), None)
    if found is None:
        known = "; ".join(f"{one.name}: {one.files}" for one in FORMATS)
        raise ConfigError(f"{folder} holds no model of a known format ({known})")
    tell(f"{source.path} is a model of {found.name}")
    try:
        imported = found.read(source, tell)
    except RegardError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, StopIteration, TypeError, ValueError) as error:
        # The readers name what they know to be wrong; bytes of strangers can be wrong in other ways.
        raise ConfigError(f"{source} is damaged: {type(error).__name__}") from error
    return write_run(imported, source, Path("runs") / model_name(source) if out is None else out, tell=tell)
