"""Which learning rate, method and length is taken: successive halving by dev scores.

All candidates train for a few steps, the better half of them for as many more, and so on. The last one doubles its steps
until its score stops rising, or until the limit of minutes or steps is reached. A model whose general score has fallen by
more than a bound is not taken. If the model with the best score of the domain is such a one, means of its weights and those
of the base model are tried, which forget less (Wortsman et al. 2022).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regard import api
from regard.adapting.candidates import AdaptCandidate
from regard.adapting.scoring import METRIC, DevScores, DevSets
from regard.config import Recipe
from regard.errors import CheckpointError, TrainingError
from regard.loading import load_translator
from regard.run.checkpoint import Checkpoint
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.torch_loading import checked_weights, task_of_run
from regard.training.events import Listener

POINTS = "points.json"
SHARES = (0.8, 0.65, 0.5, 0.35, 0.2)  # of the trained weights in the means that are tried
PENALTY = 2.0  # on each point of general score below the bound, when candidates are ranked


class Point(msgspec.Struct, frozen=True):
    """A model on the way: a candidate after some steps, and its dev scores."""

    candidate: str
    steps: int
    domain: float
    general: float | None
    seconds: float  # of training and scoring
    share: float = 1.0  # of its weights; the rest is those of the base model

    @property
    def name(self) -> str:
        """The name of the folder that has its weights."""
        mean = "" if self.share == 1 else f"-mean-{self.share:g}"
        return f"{self.candidate}-{self.steps}{mean}"

    @property
    def scores(self) -> DevScores:
        return DevScores(self.domain, self.general)


@dataclass(frozen=True)
class SearchLimits:
    """What bounds the search."""

    minutes: float
    steps: int | None  # of each candidate
    bound: float  # points that the general dev score may fall


@dataclass(frozen=True)
class Choice:
    """The model that was taken, and everything that was tried."""

    point: Point
    run: RunFolder
    tried: list[Point]


class CandidateSearch:
    """The search for the best candidate, in a folder that keeps what has been done."""

    def __init__(
        self,
        folder: Folder,
        base: RunFolder,
        dev: DevSets,
        recipe_of: Callable[[AdaptCandidate, int], Recipe],
        *,
        base_scores: DevScores,
        limits: SearchLimits,
        text: Path,
        device: str,
        tell: Callable[[str], None],
        listen: Listener,
    ) -> None:
        self.folder, self.base, self.dev, self.recipe_of = folder, base, dev, recipe_of
        self.base_scores, self.limits, self.text, self.device = base_scores, limits, text, device
        self.tell, self.listen = tell, listen
        self.points: list[Point] = folder.load_struct(POINTS, list[Point]) if folder.has_file(POINTS) else []

    def choose(self, candidates: Sequence[AdaptCandidate], first: int) -> Choice:
        """Return the best model. `first` is the number of steps of the first round."""
        steps, best = min(first, self.limits.steps or first), 0.0
        while candidates:
            scored = {one: point for one in candidates if (point := self._train(one, steps)) is not None}
            ranked = sorted(scored, key=lambda one: -self.value(scored[one]))
            highest = self.value(scored[ranked[0]]) if ranked else -math.inf
            stalled = len(candidates) == 1 and highest <= best
            if len(scored) < len(candidates) or stalled or steps == self.limits.steps:
                break
            best = max(best, highest)
            candidates = ranked[: math.ceil(len(ranked) / 2)]
            steps = min(2 * steps, self.limits.steps or 2 * steps)
        # The newest of equals, because weights of older ones have been removed.
        leader = max(reversed(self.points), key=lambda one: (one.share == 1, one.domain), default=None)
        if leader is None:
            raise TrainingError("every candidate diverged; check the text, or adapt a run that is trained better")
        for share in SHARES if not self._fits(leader) else ():
            if self._fits(self._mean(leader, share)):
                break
        point = best_point(self.points, self.base_scores, bound=self.limits.bound)
        return Choice(point, RunFolder(self._place(point)), self.points)

    def value(self, point: Point) -> float:
        """Return by how much a point is better than the base model, for ranking."""
        excess = max(0.0, point.scores.loss_from(self.base_scores) - self.limits.bound)
        return point.domain - self.base_scores.domain - PENALTY * excess

    def _fits(self, point: Point) -> bool:
        return point.scores.loss_from(self.base_scores) <= self.limits.bound

    def _place(self, point: Point) -> Path:
        return (self.folder / "points").path / point.name

    def _found(self, candidate: str, steps: int, share: float = 1.0) -> Point | None:
        wanted = (candidate, steps, share)
        return next((one for one in self.points if (one.candidate, one.steps, one.share) == wanted), None)

    def _train(self, candidate: AdaptCandidate, steps: int) -> Point | None:
        """Return the candidate after so many steps; None if the time does not suffice, or if it diverges."""
        if (known := self._found(candidate.name, steps)) is not None:
            return known
        if self._would_be_late(candidate, steps):
            self.tell(f"the limit of {self.limits.minutes:g} minutes is reached; --minutes sets another one")
            return None
        began, out = time.monotonic(), (self.folder / "candidates").path / candidate.name
        self.tell(f"training {candidate.name} up to step {steps:,}")
        try:
            api.train(
                self.recipe_of(candidate, steps),
                out=out,
                data=self.text,
                listen=self.listen,
                accept=["train.steps"],
                warn=lambda text: None,
            )
        except (TrainingError, CheckpointError) as error:
            if isinstance(error, CheckpointError) and "not finite" not in str(error):
                raise
            self.tell(f"{candidate.name} diverged")
            return None
        return self._keep(RunFolder(out), began, candidate.name, steps)

    def _keep(self, run: RunFolder, began: float, candidate: str, steps: int, share: float = 1.0) -> Point:
        """Score a run, copy its weights if they may be taken, and record both."""
        scores = self.dev.scores(load_translator(run.path, "adapt", device=self.device, engine="torch"))
        point = Point(candidate, steps, scores.domain, scores.general, time.monotonic() - began, share)
        place = self._place(point)
        if run.path != place and not RunFolder(place).finished:
            api.export(run.path, place, cards=False)
        self.points.append(point)
        self.folder.save_text(POINTS, msgspec.json.encode(self.points).decode() + "\n")
        self.tell(f"{point.name}: {self._describe(scores)}")
        for other in superseded(self.points, point):
            if self._place(other).exists():
                (self.folder / "points").remove(other.name)
        return point

    def _describe(self, scores: DevScores) -> str:
        base = self.base_scores
        parts = [f"dev {METRIC} {scores.domain:.1f} ({scores.domain - base.domain:+.1f})"]
        if scores.general is not None and base.general is not None:
            parts.append(f"general {scores.general:.1f} ({scores.general - base.general:+.1f})")
        return ", ".join(parts)

    def _would_be_late(self, candidate: AdaptCandidate, steps: int) -> bool:
        """Whether training on would end after the limit, at the speed so far."""
        trained = [one for one in self.points if one.share == 1]
        if not trained:
            return False
        before = max((one.steps for one in trained if one.candidate == candidate.name), default=0)
        spent, every = sum(one.seconds for one in self.points), min(one.steps for one in trained)
        slowest = max(one.seconds for one in trained if one.steps == every)
        return spent + slowest * (steps - before) / every > 60 * self.limits.minutes

    def _mean(self, point: Point, share: float) -> Point:
        """Return the mean of the weights of a point and of the base model."""
        if (known := self._found(point.candidate, point.steps, share)) is not None:
            return known
        began, run = time.monotonic(), RunFolder(self._place(point))
        task = task_of_run(run)
        codec = task.load_codec(run.codec_folder())
        own, _ = checked_weights(run, task, codec)
        theirs, _ = checked_weights(self.base, task, codec)
        weights = {name: theirs.weights[name].lerp(weight, share) for name, weight in own.weights.items()}
        mean = msgspec.structs.replace(point, share=share)
        target = RunFolder(self._place(mean))
        if not target.finished:
            target.finish(Checkpoint(weights, {}, own.counters))
            target.create(run.recipe(), codec, run.corpus())
        return self._keep(target, began, point.candidate, point.steps, share)


def best_point(points: Sequence[Point], base: DevScores, *, bound: float) -> Point:
    """Return the point with the best score of the domain, among those whose general score falls by at most the bound.

    If there is none, it is the one that loses least. Of equal ones, it is the newest.
    """
    fit = [one for one in points if one.scores.loss_from(base) <= bound]
    if fit:
        return max(reversed(fit), key=lambda one: one.domain)
    return min(reversed(points), key=lambda one: (one.scores.loss_from(base), -one.domain))


def superseded(points: Sequence[Point], newest: Point) -> list[Point]:
    """Return the points that are never taken, because the newest one is at least as good in both scores.

    A mean does not supersede a trained model, of which other means may be made.
    """
    return [
        one
        for one in points
        if one is not newest
        and (one.share < 1 or newest.share == 1)
        and one.domain <= newest.domain
        and (one.general or 0.0) <= (newest.general or 0.0)
    ]
