"""`regard adapt`: a run, text of a domain, and out comes an adapted run with the proof of what it gained and lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from regard import api
from regard.adapting.candidates import candidate_recipe, candidates_for, first_round
from regard.adapting.choosing import CandidateSearch, Choice, SearchLimits
from regard.adapting.comparing import SetComparison, compare_outputs
from regard.adapting.general import GeneralText, apart_from, read_general, text_of_base
from regard.adapting.replay import SHARE, ReplayKind, own_translations, replay_weight, sources_of_replay
from regard.adapting.report import Adaptation
from regard.adapting.scoring import DevScores, DevSets, source_is_target_language
from regard.adapting.splitting import TextSplit, split_pairs
from regard.adapting.verdict import judge
from regard.config import Bitext
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError
from regard.loading import checked_weights, load_translator, require_translation, task_of_run
from regard.progress import print_to_stderr
from regard.run.card import make_card, write_card
from regard.run.finding import find_run
from regard.run.folder import ADAPTATION_JSON, ADAPTATION_PAGE, RunFolder
from regard.storage.resumable import ResumableFolder
from regard.text.bitext import pairs_fingerprint
from regard.text.corpus import read_pairs
from regard.text.languages import languages_of
from regard.text.pair import Pair
from regard.text.text_report import TextReport
from regard.training.events import Listener

SETTINGS, BASE = "settings.json", "base.json"
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
    work = _Work(out, base, split, known, replay=replay, seed=seed, device=device, tell=tell)
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


@dataclass(frozen=True)
class _Work:
    """The folder of an adaptation, which keeps the text and what has been computed."""

    out: Path
    base: RunFolder
    split: TextSplit
    general: GeneralText | None
    replay: ReplayKind
    seed: int
    device: str
    tell: Callable[[str], None]

    @property
    def folder(self) -> ResumableFolder:
        return ResumableFolder(self.out.with_name(f"{self.out.name}.adapting"), settings=SETTINGS)

    @property
    def kind(self) -> Literal["general", "self"] | None:
        """Where the replay comes from."""
        if self.replay == "none":
            return None
        return "general" if self.general is not None and self.replay == "auto" and self.general.replay else "self"

    def parts(self) -> dict[str, Sequence[Pair]]:
        """Return the text by the names of its files."""
        general = self.general
        own: dict[str, Sequence[Pair]] = {"train": self.split.train, "dev": self.split.dev, "test": self.split.test}
        if general is None:
            return own
        more = {"general-dev": general.dev, "general-test": general.test}
        return {**own, **more}

    def _sources(self) -> dict[str, Sequence[Pair]]:
        """Return the pairs whose sources the base model translates for the replay."""
        if self.kind is None:
            return {}
        if self.kind == "self" or self.general is None:
            return {"replay": self.split.train}
        return {"replay": sources_of_replay(self.general.replay, train=len(self.split.train))}

    def begin(self, stored: Mapping[str, Any] | None, limits: Mapping[str, Any]) -> None:
        """Write settings and text, or refuse to resume with others."""
        settings: dict[str, Any] = {
            "base": self.base.weights_digest(),
            "replay": self.kind or "none",
            "seed": self.seed,
            **limits,
            **{name: pairs_fingerprint(pairs)["sha256"] for name, pairs in {**self.parts(), **self._sources()}.items()},
        }
        if stored is not None:
            self.folder.refuse_changes(stored, settings)
            self.tell(f"resuming in {self.folder}")
        self.folder.save_json(SETTINGS, settings)
        for name, pairs in self.parts().items():
            self._save(name, pairs)

    def _save(self, name: str, pairs: Sequence[Pair]) -> None:
        lines = [json.dumps({"source": one.source, "target": one.target}, ensure_ascii=False) for one in pairs]
        (self.folder / "text").make().save_text(f"{name}.jsonl", "".join(f"{line}\n" for line in lines))

    @property
    def text(self) -> Path:
        return (self.folder / "text").path

    def _translator(self, run: RunFolder) -> Translator:
        return load_translator(run.name_in_use, "adapt", device=self.device, warn=self.tell)

    def choose(self, limits: SearchLimits, listen: Listener) -> tuple[Choice, DevScores]:
        """Make the replay text, and search for the best candidate."""
        translator = self._translator(self.base)
        dev = DevSets(self.split.dev, self.general.dev if self.general else (), self.base.recipe().evaluate)
        if not self.folder.has_file(BASE):
            if source_is_target_language(translator, self.split.dev):
                raise DataError(
                    f"the sources seem to be in the language that {self.base.path.name} translates into; exchange the "
                    "sides of the file with --columns, as in --columns 2,1 or --columns en,de"
                )
            found = dev.scores(translator)
            self.folder.save_json(BASE, {"domain": found.domain, "general": found.general})
        base_scores = self.folder.load_struct(BASE, DevScores)
        for name, pairs in self._sources().items():
            if not (self.folder / "text").has_file(f"{name}.jsonl"):
                self.tell(f"translating {len(pairs):,} sources with the base model, as replay")
                self._save(name, own_translations(translator, pairs))
        train = [Bitext(pairs="train.jsonl")]
        if self.kind is not None:
            count = len(read_pairs(self.text / "replay.jsonl"))
            weight = replay_weight(self.kind, train=len(self.split.train), replay=count)
            train.append(Bitext(pairs="replay.jsonl", weight=weight))
        tests = {"new": Bitext(pairs="test.jsonl")}
        if self.general is not None:
            tests["general"] = Bitext(pairs="general-test.jsonl")
        search = CandidateSearch(
            self.folder,
            self.base,
            dev,
            lambda candidate, steps: candidate_recipe(
                self.base.recipe(),
                candidate,
                name=self.out.name,
                init=str(self.base.name_in_use.absolute()),
                train=train,
                test=tests,
                steps=steps,
                seed=self.seed,
                device=self.device,
            ),
            base_scores=base_scores,
            limits=limits,
            text=self.text,
            device=self.device,
            tell=self.tell,
            listen=listen,
        )
        first = first_round(translator, self.split.train, SHARE[self.kind] if self.kind else 0.0)
        return search.choose(candidates_for(translator.model.width), first), base_scores

    def compare(self, choice: Choice) -> tuple[SetComparison, SetComparison | None]:
        """Translate the test sets with both models, as their recipe searches, and compare the outputs."""
        sets = {"new text": self.split.test, **({"general text": self.general.test} if self.general else {})}
        outputs = []
        for run in (self.base, choice.run):
            translator = self._translator(run)
            outputs.append([translator.translate([pair.source for pair in pairs]) for pairs in sets.values()])
        config = self.base.recipe().evaluate
        found = [
            compare_outputs(name, pairs, before, after, config)
            for (name, pairs), before, after in zip(sets.items(), *outputs, strict=True)
        ]
        return found[0], found[1] if len(found) > 1 else None

    def counts(self, report: TextReport) -> dict[str, int]:
        """Return the number of pairs in each part, and of those that were left out."""
        split = self.split
        parts = {"train": len(split.train), "dev": len(split.dev), "test": len(split.test)}
        return {**parts, "duplicates": split.duplicates, "leaks": split.leaks, "unusable": report.total}

    def describe_replay(self) -> dict[str, Any]:
        """Return what was trained on against forgetting."""
        if self.kind is None:
            return {"kind": "none"}
        origin = self.general.origin if self.kind == "general" and self.general else "the new text"
        return {"kind": self.kind, "origin": origin, "share": round(SHARE[self.kind] / (1 + SHARE[self.kind]), 3)}


def _write(chosen: RunFolder, target: RunFolder, adaptation: Adaptation) -> None:
    """Write the report and the card, then copy the chosen model to its place; the recipe comes last."""
    chosen.write_extras({ADAPTATION_JSON: adaptation.as_json(), ADAPTATION_PAGE: adaptation.as_markdown()})
    task = task_of_run(chosen)
    checkpoint, name = checked_weights(chosen, task, task.load_codec(chosen.codec_folder()))
    write_card(chosen, make_card(chosen, checkpoint, name, []))
    api.export(chosen.path, target.path)
