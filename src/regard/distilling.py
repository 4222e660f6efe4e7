"""A teacher's translations of a corpus as a corpus of their own: what small and parallel students learn from.

Kim and Rush 2016: a student that cannot learn everything learns the teacher's most usual way to say it more easily than the
many ways of people. The folder holds source.txt and target.txt, line by line, and a card that says where they come from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard import api
from regard.config import Bitext
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import READ_AHEAD, Translation, Translator
from regard.errors import ConfigError, DataError
from regard.run.log import log_line, parse_line
from regard.run.pretrained import find_run
from regard.storage.folder import LARGE, LOCK, Folder, is_temporary
from regard.storage.manifest import sweep
from regard.text.bitext import data_folders, load_bitext, pairs_fingerprint, refuse_outside
from regard.text.corpus import Pair, read_pairs

CARD, PART = "card.json", "target.jsonl.part"
MOST_BYTES = 64 * LARGE  # of a corpus that is held in memory

ReportPairs = Callable[[int, int], None]  # pairs done, pairs in all


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
    progress: ReportPairs = lambda done, total: None,
) -> Path:
    """Translates the corpus that the teacher was trained on, or the files given, into a folder; where that is.

    With `closest` not the best translation of a beam is taken but the one most like the reference (sentence BLEU). A folder
    that was begun with the same teacher, corpus and options is gone on with.
    """
    folder, run = Folder(out), find_run(teacher)
    if not run.finished:
        raise ConfigError(f"{run} is still being trained; a corpus is to come from one model, so let it finish first")
    pairs = _pairs(str(run), run.recipe().data.train, source, reference, data)
    translator = api.load_translator(teacher, "distill", device=device)
    options = translator.config.replace(beam=beam)
    options = options.replace(nbest=options.beam if closest else 1)
    about = {
        "teacher": run.recipe().name,
        "weights": run.weights_digest(),
        "text": pairs_fingerprint(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "max_extra": options.max_extra,
        "choice": "the translation of the beam most like the reference" if closest else "the best of the beam",
        "license": run.recipe().data.license,
        "attribution": run.recipe().data.attribution,
    }
    if folder.path.exists() and not (folder.path.is_dir() and (folder.has_file(CARD) or _empty(folder))):
        raise ConfigError(f"{folder} is there already, and not a folder of ours; name another one")
    with folder.locked(busy=f"another process is writing {folder}; wait for it, or name another folder"):
        _write(folder, pairs, translator, options, about, closest=closest, progress=progress)
    return folder.path


def _pairs(
    run: str, trained_on: Bitext, source: Path | str | None, reference: Path | str | None, data: Path | str | None
) -> list[Pair]:
    if (source is None) != (reference is None):
        raise ConfigError("give both --source and --reference, or neither to translate what the teacher was trained on")
    if source is not None and reference is not None:
        return read_pairs(Path(source), Path(reference))
    if trained_on.store and not (trained_on.source or trained_on.pairs):
        raise DataError("the teacher was trained on a store of ids, without its text; give --source and --reference")
    folders = data_folders(data, None)
    refuse_outside(trained_on, folders, recipe_of=run)
    return load_bitext(trained_on, folders=folders)


def _write(
    folder: Folder,
    pairs: Sequence[Pair],
    translator: Translator,
    options: SearchOptions,
    about: dict[str, Any],
    *,
    closest: bool,
    progress: ReportPairs,
) -> None:
    sweep(folder)
    if folder.has_file(CARD):
        there = folder.load_json(CARD)
        if not isinstance(there, dict) or {key: there.get(key) for key in about} != about:
            raise ConfigError(f"{folder} holds translations by another teacher, or of another corpus; name another one")
        if there.get("done"):
            if folder.has_file(PART):
                folder.remove(PART)
            return
    folder.save_json(CARD, {**about, "done": False})
    done = _cut_to_lines(folder, most=len(pairs))
    progress(done, len(pairs))
    with folder.append_file(PART) as file:
        rest = iter(pairs[done:])
        while chunk := list(islice(rest, READ_AHEAD)):
            for text in _chosen(translator, chunk, options, closest=closest):
                file.write(log_line({"text": text}).encode())
            file.flush()
            os.fsync(file.fileno())
            done += len(chunk)
            progress(done, len(pairs))
    texts = _read_part(folder)
    blank = sum(not text.strip() for text in texts)
    texts = [text if text.strip() else pair.target for text, pair in zip(texts, pairs, strict=True)]
    about = {**about, "blank_translations_replaced_by_the_reference": blank}
    folder.save_text("source.txt", "".join(pair.source + "\n" for pair in pairs))
    folder.save_text("target.txt", "".join(text + "\n" for text in texts))
    folder.save_text("card.md", _as_markdown(about))
    folder.save_json(CARD, {**about, "done": True})
    folder.remove(PART)


def _empty(folder: Folder) -> bool:
    return all(name == LOCK or is_temporary(name) for name in folder.names())


def _read_part(folder: Folder) -> list[str]:
    """The translations that were written, up to the first line that a crash left half written."""
    texts: list[str] = []
    for line in folder.load_bytes(PART, limit=MOST_BYTES).split(b"\n")[:-1] if PART in folder.names() else []:
        text = (parse_line(line) or {}).get("text")
        if not isinstance(text, str) or "\n" in text:
            break
        texts.append(text)
    return texts


def _cut_to_lines(folder: Folder, *, most: int) -> int:
    """How many translations are there already; what a crash left behind them is cut off."""
    texts = _read_part(folder)[:most]
    folder.save_text(PART, "".join(log_line({"text": text}) for text in texts))
    return len(texts)


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
