"""The record of a cell that has ended: its settings, its scores and its cost, as `cell.json` has them."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from regard.study.study_file import Settings

State = Literal["finished", "diverged", "failed"]
STATES: tuple[State, ...] = get_args(State)
Scores = dict[str, float | None]  # by metric; None: not finite


class SetScores(msgspec.Struct, frozen=True):
    """The scores of one cell on one test set."""

    name: str
    pairs: int
    sha256: str  # of the pairs, as in the card of a run
    search: str  # how outputs were found; empty for tasks that do not search
    scores: Scores  # all metrics of the recipe; "perplexity" is per label, of the references
    signatures: dict[str, str]  # by metric: what it takes to compute the same score
    outputs_sha256: str  # of the file of outputs; empty for tasks without outputs


class ValidationScores(msgspec.Struct, frozen=True):
    """What a validation during training measured: greedy search, on at most `train.validate_pairs` pairs."""

    step: int
    scores: Scores


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that has ended. Only `seconds`, `tokens_per_second` and what `machine` says depend on the machine's speed."""

    row: str
    candidate: Settings  # the values of what is chosen; empty if nothing is
    seed: int
    state: State
    problem: str = ""  # why it diverged or failed, in a sentence
    settings: Settings  # all that the cell changes in the recipe
    settings_sha256: str  # of the complete recipe
    corpus: dict[str, str] = {}  # hashes of the training and dev text, by part; records of earlier versions have none
    parameters: int = 0
    steps: int = 0  # taken
    dev: list[ValidationScores] = []  # by step of training
    tests: list[SetScores] = []  # of the final weights; the dev set is called "valid"
    seconds: float = 0.0  # of training
    tokens_per_second: float | None = None  # labels
    # Cells that shared the GPU, or the machine if it has none; in the file under the name that older records have.
    sharing_device: int = msgspec.field(default=1, name="at_once")
    how: str = ""  # device, precision and number of processes
    machine: dict[str, str] = {}  # device, and versions

    def test(self, name: str) -> SetScores | None:
        """Return the scores on a test set, or None if there are none."""
        return next((one for one in self.tests if one.name == name), None)

    def score(self, test: str, metric: str) -> float | None:
        """Return one score, or None if the cell has none."""
        found = self.test(test)
        return None if found is None else found.scores.get(metric)
