"""A teacher's translations of a corpus as a corpus of their own: what small and parallel students learn from.

Kim and Rush 2016: a student that cannot learn everything learns the teacher's most usual way to say it more easily than the
many ways of people. The folder holds source.txt and target.txt, line by line, and a card that says where they come from.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from regard import api
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import READ_AHEAD, Translation, Translator, search_options
from regard.errors import ConfigError, DataError
from regard.run.files import held, manifest_digest, read_json, sync_folder, write_bytes, write_json, write_text
from regard.run.shipped import find_run
from regard.text.bitext import data_folders, load_bitext, pairs_fingerprint
from regard.text.corpus import Pair, read_pairs

Progress = Callable[[int, int], None]  # pairs done, pairs in all


def distill(
    teacher: Path | str,
    out: Path | str,
    *,
    source: Path | str | None = None,
    reference: Path | str | None = None,
    data: Path | str | None = None,
    beam: int | None = None,
    closest: bool = False,
    device: str = "auto",
    progress: Progress = lambda done, total: None,
) -> Path:
    """Translates the corpus that the teacher was trained on, or the files given, into a folder; where that is.

    With `closest` not the best translation of a beam is taken but the one most like the reference (sentence BLEU). A folder
    that was begun with the same teacher, corpus and options is gone on with.
    """
    folder, run = Path(out), find_run(teacher)
    if not run.finished:
        raise ConfigError(f"{run} is still being trained; a corpus is to come from one model, so let it finish first")
    pairs = _pairs(run.recipe().data.train, source, reference, data)
    translator = api.load(teacher, device=device)
    options = search_options(translator.config, beam=beam)
    options = replace(options, nbest=options.beam if closest else 1)
    about = {
        "teacher": run.recipe().name,
        "weights": manifest_digest(run.path / "final"),
        "text": pairs_fingerprint(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "max_extra": options.max_extra,
        "choice": "the translation of the beam most like the reference" if closest else "the best of the beam",
        "license": run.recipe().data.license,
        "attribution": run.recipe().data.attribution,
    }
    if folder.exists() and not (folder.is_dir() and ((folder / "card.json").exists() or _empty(folder))):
        raise ConfigError(f"{folder} is there already, and not a folder of ours; name another one")
    with held(folder, busy=f"another process is writing {folder}; wait for it, or name another folder"):
        _write(folder, pairs, translator, options, about, closest=closest, progress=progress)
    return folder


def _pairs(
    trained_on: Any, source: Path | str | None, reference: Path | str | None, data: Path | str | None
) -> list[Pair]:
    if (source is None) != (reference is None):
        raise ConfigError("give both --source and --reference, or neither to translate what the teacher was trained on")
    if source is not None and reference is not None:
        return read_pairs(Path(source), Path(reference))
    if trained_on.store and not (trained_on.source or trained_on.pairs):
        raise DataError("the teacher was trained on a store of ids, without its text; give --source and --reference")
    return load_bitext(trained_on, folders=data_folders(data, None))


def _write(
    folder: Path,
    pairs: Sequence[Pair],
    translator: Translator,
    options: SearchOptions,
    about: dict[str, Any],
    *,
    closest: bool,
    progress: Progress,
) -> None:
    card, part = folder / "card.json", folder / "target.txt.part"
    if card.exists():
        there = read_json(card)
        if {key: there.get(key) for key in about} != about:
            raise ConfigError(f"{folder} holds translations by another teacher, or of another corpus; name another one")
        if there["done"]:
            part.unlink(missing_ok=True)
            return
    write_json(card, {**about, "done": False})
    done = len(_cut_to_intact_lines(part))
    progress(done, len(pairs))
    with part.open("ab") as file:
        rest = iter(pairs[done:])
        while chunk := list(islice(rest, READ_AHEAD)):
            for text in _chosen(translator, chunk, options, closest=closest):
                file.write(_part_line(text))
            file.flush()
            os.fsync(file.fileno())
            done += len(chunk)
            progress(done, len(pairs))
    texts = _intact_lines(part)
    blank = sum(not text.strip() for text in texts)
    texts = [text if text.strip() else pair.target for text, pair in zip(texts, pairs, strict=True)]
    about = {**about, "blank_translations_replaced_by_the_reference": blank}
    write_text(folder / "source.txt", "".join(pair.source + "\n" for pair in pairs))
    write_text(folder / "target.txt", "".join(text + "\n" for text in texts))
    write_text(folder / "card.md", _as_markdown(about))
    write_json(card, {**about, "done": True})
    part.unlink()
    sync_folder(folder)


def _empty(folder: Path) -> bool:
    return all(
        path.name.startswith(".") for path in folder.iterdir()
    )  # the lock, and what a crash left of a first file


def _part_line(text: str) -> bytes:
    """A translation with its checksum: after a crash any part of a file that was being written may be lost."""
    return b"%08x %s\n" % (zlib.crc32(text.encode()), text.encode())


def _intact_lines(part: Path) -> list[str]:
    """The translations up to the first line that is not what was written."""
    texts: list[str] = []
    for line in part.read_bytes().split(b"\n")[:-1]:
        text = line[9:].decode(errors="replace")
        if _part_line(text) != line + b"\n":
            break
        texts.append(text)
    return texts


def _cut_to_intact_lines(part: Path) -> list[str]:
    texts = _intact_lines(part) if part.exists() else []
    write_bytes(part, b"".join(map(_part_line, texts)))
    return texts


def _chosen(translator: Translator, pairs: Sequence[Pair], options: SearchOptions, *, closest: bool) -> Iterator[str]:
    found = translator.stream([pair.source for pair in pairs], options=options)
    for pair, translations in zip(pairs, found, strict=True):
        yield most_like(pair.target, translations) if closest else translations[0].text


def most_like(reference: str, translations: Sequence[Translation]) -> str:
    """The translation with the highest sentence BLEU, the first of equal ones."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True, tokenize="none", force=True)
    return max(translations, key=lambda one: metric.sentence_score(one.text, [reference]).score).text


def _as_markdown(about: dict[str, Any]) -> str:
    rows = [f"| {key.replace('_', ' ')} | {value} |" for key, value in about.items() if value is not None]
    return "\n".join(["# A distilled corpus", "", "| | |", "|---|---|", *rows, ""])
