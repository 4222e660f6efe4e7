"""`regard adapt`: a run, text of a domain, and out comes an adapted run with the proof of what it gained and lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from regard import api
from regard.adapting.choosing import SearchLimits
from regard.adapting.general import GeneralText, apart_from, read_general, text_of_base
from regard.adapting.replay import ReplayKind
from regard.adapting.report import Adaptation
from regard.adapting.splitting import split_pairs
from regard.adapting.verdict import judge
from regard.adapting.work import AdaptationWork
from regard.errors import ConfigError, DataError
from regard.loading import require_translation
from regard.progress import print_to_stderr
from regard.run.card import make_card, write_card
from regard.run.finding import find_run
from regard.run.folder import ADAPTATION_JSON, ADAPTATION_PAGE, RunFolder
from regard.text.corpus import read_pairs
from regard.text.languages import languages_of
from regard.text.pair import Pair
from regard.text.text_report import TextReport
from regard.torch_loading import checked_weights, task_of_run
from regard.training.events import Listener

Columns = tuple[str | int, str | int]


def adapt(
    run: Path | str,
    text: Path | str | Sequence[Path | str],
    *,
    out: Path | str | None = None,
    reference: Path | str | None = None,
    columns: Columns | None = None,
    test: Path | str | None = None,
    general: Sequence[Path | str] = (),
    data: Path | str | None = None,
    replay: ReplayKind = "auto",
    minutes: float = 15.0,
    steps: int | None = None,
    bound: float = 0.5,
    accept_loss: bool = False,
    seed: int = 1,
    device: str = "auto",
    command: str = "regard.adapt",
    tell: Callable[[str], None] = print_to_stderr,
    listen: Listener = lambda event: None,
) -> Adaptation:
    """Adapt a translation run to text of one domain, and measure what it gains and loses.

    `text` is one or more files of pairs, in any format; or sources, one per line, if `reference` names their translations.
    A part of it is kept for testing unless `test` names a file of pairs. `general` are files of pairs of the general domain;
    without them, the text of the base run is used if it is found in the folder `data`. `replay` says what the base model
    translates to be trained on against forgetting: "auto" is the general text, or the new text if there is none; "self" is
    always the latter. `bound` is by how many points of chrF the general dev score may fall. An interrupted call resumes.
    """
    base = find_run(run)
    require_translation(run, "adapt")
    if not base.finished and base.checkpoint is None:
        raise ConfigError(f"{base} is still being trained; wait until it has finished, or name one of its checkpoints")
    if base.recipe().data.multilingual:
        raise ConfigError(f"{base} translates into several languages; adapt is for runs of one pair of languages")
    out = Path(out) if out is not None else Path("runs") / f"{base.path.name}-adapted"
    rejected = out.with_name(f"{out.name}-rejected")
    for folder in (out,) if accept_loss else (out, rejected):
        if folder.exists():
            raise ConfigError(f"{folder} is there already; remove it, or name another folder with --out")
    report = TextReport(skip=True)
    languages = languages_of(base.recipe().data, base.path.name)
    read = partial(_read, languages=languages, columns=columns, report=report)
    files = [Path(text)] if isinstance(text, Path | str) else [Path(one) for one in text]
    tests = [] if test is None else read([Path(test)])
    split = split_pairs(
        read(files, None if reference is None else Path(reference)),
        seed=seed,
        test=tests,
        origin=", ".join(map(str, files)),
    )
    known = _general_text(base, general, data, languages=languages, seed=seed, report=report, tell=tell)
    if known is not None:
        known = apart_from(known, split.train, split.dev, split.test)
    for sentence in report.sentences():
        tell(sentence)
    work = AdaptationWork(out, base, split, known, replay=replay, seed=seed, device=device, tell=tell)
    limits = SearchLimits(minutes, steps, bound)
    with work.folder.opened() as stored:
        work.begin(stored, {"bound": bound, "steps": steps})
        choice, base_scores = work.choose(limits, listen)
        domain, tested = work.compare(choice)
        verdict = judge(domain, tested, accept_loss=accept_loss)
        target = RunFolder(out if verdict.accepted else rejected)
        adaptation = Adaptation(
            target,
            verdict,
            domain,
            tested,
            base=base.path.name,
            weights=base.weights_digest(),
            command=command,
            text=work.counts(report),
            replay=work.describe_replay(),
            chosen=choice.point,
            tried=choice.tried,
            base_scores=base_scores,
            seed=seed,
        )
        _write(choice.run, target, adaptation)
        if verdict.accepted:
            for name in ("candidates", "points"):
                work.folder.remove(name)
    return adaptation


def _read(
    files: Sequence[Path],
    reference: Path | None = None,
    *,
    languages: tuple[str, str] | None,
    columns: Columns | None,
    report: TextReport,
) -> list[Pair]:
    try:
        if reference is not None:
            return read_pairs(list(files), [reference], report=report)
        return read_pairs(list(files), columns=columns, languages=languages, report=report)
    except DataError as error:
        if languages is None or "gave no pair" not in str(error):
            raise
        pair = " to ".join(languages)
        raise DataError(f"{error}; the run translates {pair}: name the sides of the file with --columns") from error


def _general_text(
    base: RunFolder,
    files: Sequence[Path | str],
    data: Path | str | None,
    *,
    languages: tuple[str, str] | None,
    seed: int,
    report: TextReport,
    tell: Callable[[str], None],
) -> GeneralText | None:
    if files:
        return read_general(files, languages=languages, seed=seed, report=report)
    try:
        return text_of_base(base, data, seed=seed, report=report)
    except DataError:
        if data is not None:
            raise
        tell(
            "no general text: what the model forgets is not measured; name some with --general, or --data of the base run"
        )
        return None


def _write(chosen: RunFolder, target: RunFolder, adaptation: Adaptation) -> None:
    """Write the report and the card, then copy the chosen model to its place; the recipe comes last."""
    chosen.write_extras({ADAPTATION_JSON: adaptation.as_json(), ADAPTATION_PAGE: adaptation.as_markdown()})
    task = task_of_run(chosen)
    checkpoint, name = checked_weights(chosen, task, task.load_codec(chosen.codec_folder()))
    write_card(chosen, make_card(chosen, checkpoint, name, []))
    api.export(chosen.path, target.path)
