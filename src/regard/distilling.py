"""Sequence-level knowledge distillation (Kim and Rush 2016): write a teacher's translations of a corpus as a new corpus.

A teacher's translations vary less than human ones, so small and non-autoregressive students learn them more easily. The
folder holds source.txt and target.txt, aligned line by line, and a card with their origin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard import loading
from regard.config import DataConfig, SearchOptions
from regard.decoding.translator import READ_AHEAD, Translation, Translator
from regard.errors import ConfigError, DataError
from regard.messages import warn_caller
from regard.run.finding import find_run
from regard.run.log import log_line, parse_line
from regard.storage.folder import LARGE
from regard.storage.resumable import ResumableFolder
from regard.text.bitext import data_folders, load_bitext, new_report, pairs_fingerprint, refuse_outside
from regard.text.corpus import Pair, read_pairs
from regard.text.text_report import TextReport

CARD = "card.json"  # written first, with the settings, and again when the corpus is complete
PART = "target.jsonl.part"  # translations so far
MAX_BYTES = 64 * LARGE  # of a corpus that is held in memory

ReportPairs = Callable[[int, int], None]  # pairs done, pairs in total


def distill(
    teacher: Path | str,
    out: Path | str,
    *,
    source: Path | str | None = None,
    reference: Path | str | None = None,
    to: str | None = None,
    data: Path | str | None = None,
    beam: int | None = None,
    closest: bool = False,
    device: str = "auto",
    progress: ReportPairs = lambda done, total: None,
    warn: Callable[[str], None] = warn_caller,
) -> Path:
    """Translate the teacher's training corpus, or the given files, into a folder; return its path.

    With `closest`, the hypothesis of the beam closest to the reference (sentence BLEU) is taken instead of the best one.
    `to` is the language to translate into, of a teacher that has several. A folder that was started with the same teacher,
    corpus and options is resumed.
    """
    folder, run = ResumableFolder(out, settings=CARD), find_run(teacher)
    if not run.finished and run.checkpoint is None:
        raise ConfigError(
            f"{run} is still being trained; wait until it has finished, so that the corpus comes from one model"
        )
    report = new_report(run.recipe().data)
    pairs = _pairs(str(run), run.recipe().data, source, reference, data, report)
    for sentence in report.sentences():
        warn(sentence)
    translator = loading.load_translator(teacher, "distill", device=device, warn=warn).into(to)
    options = translator.options.replace(beam=beam)
    options = options.replace(nbest=options.beam if closest else 1)
    about = {
        "teacher": run.recipe().name,
        "weights": run.weights_digest(),
        "text": pairs_fingerprint(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        # Left out where it is the default, so that corpora of earlier versions can be resumed.
        **({"length_penalty_kind": "power"} if options.length_penalty_kind == "power" else {}),
        "max_extra": options.max_extra,
        "choice": "the translation of the beam most like the reference" if closest else "the best of the beam",
        **({} if to is None else {"into": to}),
        "license": run.recipe().data.license,
        "attribution": run.recipe().data.attribution,
    }
    with folder.opened() as stored:
        _write(folder, stored, pairs, translator, options, about, closest=closest, progress=progress)
    return folder.path


def _pairs(
    run: str,
    config: DataConfig,
    source: Path | str | None,
    reference: Path | str | None,
    data: Path | str | None,
    report: TextReport,
) -> list[Pair]:
    if (source is None) != (reference is None):
        raise ConfigError("give both --source and --reference, or neither to translate the teacher's training corpus")
    if source is not None and reference is not None:
        return read_pairs(Path(source), Path(reference), report=report)
    if len(config.corpora) > 1:
        raise DataError("the teacher was trained on several corpora; give --source and --reference of one of them")
    (trained_on,) = config.corpora
    if trained_on.store and not (trained_on.source or trained_on.pairs):
        raise DataError("the teacher was trained on a store of token ids without text; give --source and --reference")
    folders = data_folders(data, None)
    refuse_outside(trained_on, folders, recipe_of=run)
    return load_bitext(trained_on, folders=folders, data=config, report=report)


def _write(
    folder: ResumableFolder,
    stored: dict[str, Any] | None,
    pairs: Sequence[Pair],
    translator: Translator,
    options: SearchOptions,
    about: dict[str, Any],
    *,
    closest: bool,
    progress: ReportPairs,
) -> None:
    """Translate the pairs that are missing, then write the corpus."""
    if stored is not None:
        folder.refuse_changes({key: stored.get(key) for key in about}, about)
        if stored.get("done"):
            if folder.has_file(PART):
                folder.remove(PART)
            return
    folder.save_json(CARD, {**about, "done": False})
    done = _resume_part(folder, max_lines=len(pairs))
    progress(done, len(pairs))
    with folder.append_file(PART) as file:
        rest = iter(pairs[done:])
        while chunk := list(islice(rest, READ_AHEAD)):
            for text in _translate(translator, chunk, options, first=done + 1, closest=closest):
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


def _read_part(folder: ResumableFolder) -> list[str]:
    """Return the translations so far, up to the first line that a crash left incomplete."""
    texts: list[str] = []
    for line in folder.load_bytes(PART, limit=MAX_BYTES).split(b"\n")[:-1] if PART in folder.names() else []:
        text = (parse_line(line) or {}).get("text")
        if not isinstance(text, str) or "\n" in text:
            break
        texts.append(text)
    return texts


def _resume_part(folder: ResumableFolder, *, max_lines: int) -> int:
    """Truncate the translations so far to intact lines; return how many there are."""
    texts = _read_part(folder)[:max_lines]
    folder.save_text(PART, "".join(log_line({"text": text}) for text in texts))
    return len(texts)


def _translate(
    translator: Translator, pairs: Sequence[Pair], options: SearchOptions, *, first: int, closest: bool
) -> Iterator[str]:
    found = translator.stream([pair.source for pair in pairs], options=options, first=first)
    for pair, translations in zip(pairs, found, strict=True):
        yield closest_to_reference(pair.target, translations) if closest else translations[0].text


def closest_to_reference(reference: str, translations: Sequence[Translation]) -> str:
    """Return the translation with the highest sentence BLEU; the first if several are equal."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True, tokenize="none", force=True)
    return max(translations, key=lambda one: metric.sentence_score(one.text, [reference]).score).text


def _as_markdown(about: dict[str, Any]) -> str:
    rows = [f"| {key.replace('_', ' ')} | {value} |" for key, value in about.items() if value is not None]
    return "\n".join(["# A distilled corpus", "", "| | |", "|---|---|", *rows, ""])
