"""The work of an adaptation: the replay text, the search for the best candidate, and the comparison on the test sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.adapting.candidates import candidate_recipe, candidates_for, first_round
from regard.adapting.choosing import CandidateSearch, Choice, SearchLimits
from regard.adapting.comparing import SetComparison, compare_set
from regard.adapting.general import GeneralText
from regard.adapting.replay import SHARE, ReplayKind, own_translations, replay_weight, sources_of_replay
from regard.adapting.scoring import DevScores, DevSets, source_is_target_language
from regard.adapting.splitting import TextSplit
from regard.config import Bitext
from regard.decoding.translator import Translator
from regard.errors import DataError
from regard.loading import load_translator
from regard.messages import counted
from regard.run.folder import RunFolder
from regard.storage.resumable import ResumableFolder
from regard.text.bitext import pairs_fingerprint
from regard.text.corpus import read_pairs
from regard.text.pair import Pair
from regard.text.text_report import TextReport
from regard.training.events import Listener

SETTINGS, BASE = "settings.json", "base.json"


@dataclass(frozen=True)
class AdaptationWork:
    """What an adaptation computes. Its folder keeps the text and the results so far; an interrupted call resumes from it."""

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
        return load_translator(run.name_in_use, "adapt", device=self.device, warn=self.tell, engine="torch")

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
                self.tell(f"translating {counted(len(pairs), 'source')} with the base model, as replay")
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
            compare_set(name, pairs, before, after, config)
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
