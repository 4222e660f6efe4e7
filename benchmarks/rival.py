"""Measure one rival in its own process: time per step, translation quality, decoding speed.

python benchmarks/rival.py TASK    a task as JSON, from `rivals.py`; the result is the last line
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPE = "multi30k-en-de"
LENGTHS = [(1, 9), (10, 12), (13, 15), (16, 19), (20, 99)]  # source words, inclusive
RESAMPLES = 200  # of the test set, for the confidence interval
PACE_STEPS = 400  # trained alone on the machine; the second half is timed


@dataclass(frozen=True)
class Rival:
    """A family, its training and search settings, and the score its authors reported."""

    name: str
    recipe: str
    overrides: str = ""
    beam: int = 5
    distilled: bool = False
    judged: bool = False
    original: str = ""


RIVALS = [
    Rival("Transformer", RECIPE, original="27.3 BLEU, WMT14 En-De (base)"),
    Rival("Transformer, window 8", RECIPE, "model.window=8"),
    Rival("RNN, additive attention", f"{RECIPE}-rnn", original="26.75 BLEU, WMT14 En-Fr (RNNsearch-50)"),
    Rival("RNN, general attention", f"{RECIPE}-rnn", "model.attention=general", original="19.0, En-De (theirs is local)"),
    Rival("RNN, no attention", f"{RECIPE}-rnn", "model.attention=none", original="17.82 BLEU, WMT14 En-Fr (RNNencdec-50)"),
    Rival("ConvS2S", f"{RECIPE}-convs2s", original="25.16 BLEU, WMT14 En-De"),
    Rival("ByteNet, characters", f"{RECIPE}-bytenet", original="23.75 BLEU, WMT14 En-De"),
    Rival("NAT with fertilities", f"{RECIPE}-nat", beam=1, distilled=True, original="17.35 BLEU, WMT14 En-De"),
    Rival("NAT, 10 candidates, judged", f"{RECIPE}-nat", beam=10, distilled=True, judged=True, original="18.66 BLEU, En-De"),
    Rival("mask-predict, 10 iterations", f"{RECIPE}-cmlm", beam=5, distilled=True, original="27.03 BLEU, WMT14 En-De"),
    Rival("CTC", f"{RECIPE}-ctc", beam=1, distilled=True, original="25.52 BLEU, WMT14 En-De"),
]  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One measurement of one rival with one seed, for its own process."""

    do: str  # "pace", "train", "score" or "speed"
    rival: Rival
    seed: int
    data: Path
    work: Path
    also: str  # overrides for all rivals

    @property
    def name(self) -> str:
        what = self.recipe if self.do in ("pace", "train") else self.rival.name
        return f"{self.do} {what} {self.seed}".replace(",", "").replace(" ", "-")

    @property
    def recipe(self) -> str:
        """Return a name for the training setup; rivals that differ only in search share it."""
        own = f"{self.rival.recipe} {self.rival.overrides}".replace(RECIPE, "Transformer", 1).strip()
        return own.replace(" ", "_")

    @property
    def run(self) -> Path:
        return self.work / f"run-{self.recipe}-{self.seed}"

    @property
    def steps(self) -> int:
        from regard.recipe_files import load_recipe

        return load_recipe(self.rival.recipe, self.overrides).train.steps

    @property
    def overrides(self) -> list[str]:
        found = [*self.rival.overrides.split(), *self.also.split(), f"train.seed={self.seed}"]
        if self.rival.distilled:
            folder = self.work / "distilled"
            found += [f"data.train.source={folder / 'source.txt'}", f"data.train.target={folder / 'target.txt'}"]
        return found


def pace(task: Task) -> dict[str, Any]:
    """Return the milliseconds per step, alone on the machine."""
    from regard import api
    from regard.training.events import Progress

    times: list[tuple[int, float]] = []

    def listen(event: Any) -> None:
        if isinstance(event, Progress):
            times.append((event.step, event.seconds))

    short = [f"train.steps={PACE_STEPS}", "train.log_every=20", "train.validate_pairs=1"]
    with tempfile.TemporaryDirectory() as folder:
        api.train(
            task.rival.recipe,
            out=Path(folder) / "run",
            overrides=[*task.overrides, *short],
            data=task.data,
            listen=listen,
        )
    (first, before), (last, after) = times[len(times) // 2], times[-1]
    return {"milliseconds": 1000 * (after - before) / (last - first)}


def score(task: Task) -> dict[str, Any]:
    """Return the test BLEU, its confidence interval, and BLEU by length."""
    from regard.metrics import bleu as corpus_bleu
    from regard.run.folder import RunFolder
    from regard.text.bitext import load_bitext

    config, translator = RunFolder(task.run).recipe(), _loaded(task)
    pairs = load_bitext(config.data.test["test2016"], folders=[task.data])
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    outputs = translator.translate(sources, options=config.decode.replace(beam=task.rival.beam))

    def bleu(rows: Sequence[int]) -> float:
        return corpus_bleu([outputs[n] for n in rows], [references[n] for n in rows], config.evaluate)[0]

    everything, draw = range(len(pairs)), random.Random(1)
    resampled = sorted(bleu(draw.choices(everything, k=len(pairs))) for _ in range(RESAMPLES))
    by_length = {}
    for least, most in LENGTHS:
        rows = [n for n in everything if least <= len(sources[n].split()) <= most]
        by_length[f"{least}-{most}"] = {"sentences": len(rows), "bleu": round(bleu(rows), 2)}
    return {
        "bleu": bleu(everything),
        "interval": [resampled[int(0.025 * len(resampled))], resampled[int(0.975 * len(resampled))]],
        "signature": corpus_bleu(outputs, references, config.evaluate)[1],
        "by_length": by_length,
        "parameters": translator.model.num_parameters(),
    }


def speed(task: Task) -> dict[str, Any]:
    """Return target tokens per second, alone on the machine, with greedy search and with the rival's beam."""
    from regard.run.folder import RunFolder
    from regard.text.bitext import load_bitext

    translator = _loaded(task)
    test = RunFolder(task.run).recipe().data.test["test2016"]
    sources = [pair.source for pair in load_bitext(test, folders=[task.data])]
    return {
        f"batch {size}, beam {width}": _speed(translator, sources[:count], size, width)
        for size, count in ((1, 64), (64, 512))
        for width in sorted({1, task.rival.beam})
    }


def _loaded(task: Task) -> Any:
    from regard import loading

    judge = task.work / "run-Transformer-1" if task.rival.judged else None
    return loading.load(task.run, rescorer=judge)


def _speed(translator: Any, sources: Sequence[str], size: int, beam: int) -> float:
    """Return target tokens per second with `size` sentences per call."""

    options = translator.config.replace(beam=beam)
    groups = [sources[at : at + size] for at in range(0, len(sources), size)]
    translator.translate(groups[0], options=options)
    began, tokens = time.perf_counter(), 0
    for group in groups:
        texts = translator.translate(group, options=options)
        tokens += sum(len(ids) + 1 for ids in translator.tokenizers.target.encode_all(texts))
    return round(tokens / (time.perf_counter() - began), 1)


def main() -> None:
    given = json.loads(sys.argv[1])
    given |= {"rival": Rival(**given["rival"]), "data": Path(given["data"]), "work": Path(given["work"])}
    tasks: dict[str, Callable[[Task], dict[str, Any]]] = {"pace": pace, "score": score, "speed": speed}
    print(json.dumps(tasks[given["do"]](Task(**given))))


if __name__ == "__main__":
    main()
