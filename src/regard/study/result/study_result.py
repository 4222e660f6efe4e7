"""The result of a study: all numbers that tables and figures show."""

from __future__ import annotations

import msgspec

from regard.study.study_file import Settings


class Spread(msgspec.Struct, frozen=True):
    """The mean of a score over seeds, and its standard deviation between them; of one seed there is none."""

    mean: float
    deviation: float | None
    seeds: int


class RowComparison(msgspec.Struct, frozen=True):
    """A row against the baseline on one test set, by the metric that is tested."""

    change: float
    low: float | None  # bounds of the 95 % interval over seeds
    high: float | None
    p_seeds: float | None
    p_seeds_corrected: float | None  # for the number of rows
    freedom: int | None  # degrees of freedom of the test over seeds
    pooled: bool | None  # whether its noise is estimated from all rows
    p_sentences: float | None
    p_sentences_corrected: float | None
    verdict: str


class Published(msgspec.Struct, frozen=True):
    """A published score, its change from the published baseline, and whether ours has the same direction.

    The direction is compared where ours is known: by the metric that is tested, if the row is better or worse.
    """

    score: float
    change: float | None
    same_direction: bool | None


class SetResult(msgspec.Struct, frozen=True):
    """The scores of a row on one test set."""

    test: str
    scores: dict[str, Spread]  # by metric
    by_seed: dict[str, dict[str, float]]  # by seed and metric
    compared: RowComparison | None  # of the baseline: None
    published: dict[str, Published]  # by metric


class LengthScores(msgspec.Struct, frozen=True):
    """The scores of the sentences of a test set whose references have these numbers of tokens."""

    shortest: int
    longest: int
    sentences: int
    scores: dict[str, float]  # by row, by the metric that is tested; means over seeds


class TriedCandidate(msgspec.Struct, frozen=True):
    """A candidate of a row, and its score on the dev set with the seed of candidates."""

    settings: Settings
    state: str
    score: float | None
    chosen: bool


class RowResult(msgspec.Struct, frozen=True):
    """A row of the study."""

    name: str
    group: str
    settings: Settings  # that it changes, with "recipe" if it has another one
    candidates: list[TriedCandidate]  # that were tried; empty if there was nothing to choose, or another row decides
    chosen: Settings  # the values of the candidate that was trained with all seeds
    parameters: int | None
    seconds: float | None  # of training, mean over seeds
    tokens_per_second: float | None
    sets: list[SetResult]
    problems: list[str]  # cells that are missing, diverged or failed


class Cost(msgspec.Struct, frozen=True):
    """What training has cost, candidates included."""

    cells: int
    hours: float  # of all cells, one after the other
    device_hours: (
        float  # of the machine or GPU: hours of cells that could share it, divided by their number; an estimate
    )
    devices: list[str]


class StudyResult(msgspec.Struct, frozen=True):
    """Everything that a study has found."""

    question: str
    recipe: str
    metric: str
    higher_is_better: bool
    baseline: str
    seeds: list[int]
    choosing_seed: int | None  # of the candidates; None if there is nothing to choose
    tests: list[str]
    settings: Settings  # of every row
    signatures: dict[str, str]  # by metric
    trials: int  # of approximate randomization, and its seed
    trials_seed: int
    rows: list[RowResult]
    by_length: dict[str, list[LengthScores]]  # by test set
    cost: Cost

    @property
    def complete(self) -> bool:
        """Whether every row has a score of each seed, and no candidate is missing or failed. It may have diverged."""
        return all(
            all(len(one.by_seed) == len(self.seeds) for one in row.sets)
            and all(one.state in ("finished", "diverged") for one in row.candidates)
            for row in self.rows
        )

    def row(self, name: str) -> RowResult:
        """Return a row by its name."""
        return next(row for row in self.rows if row.name == name)
