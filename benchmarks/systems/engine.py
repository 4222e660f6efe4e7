"""Our engine in C, by the calls that `regard translate` makes, without PyTorch in the process."""

import time

import numpy as np

from regard.config import SearchOptions
from regard.config.transformer import TransformerConfig
from regard.engine.model import EngineModel
from regard.engine.model import Tensor as Weight
from regard.engine.session import Session
from workload import BOS, EOS, Sentences, Setup


def weights(setup: Setup) -> list[tuple[str, Weight]]:
    """Random weights: speed does not depend on them."""
    rng, D, F = np.random.default_rng(setup.seed), setup.width, setup.hidden
    attention = {"attention.project.weight": (3 * D, D), "attention.output.weight": (D, D)}
    feed_forward = {"inner.weight": (F, D), "inner.bias": (F,), "outer.weight": (D, F), "outer.bias": (D,)}
    layer = {**attention, **{f"feed_forward.{name}": shape for name, shape in feed_forward.items()}}
    norms = ["attention", "feed_forward"]
    cross = {"query.weight": (D, D), "memory.weight": (2 * D, D), "output.weight": (D, D)}
    shapes: dict[str, tuple[int, ...]] = {"target_embedding": (setup.vocabulary, D)}
    for stack in ("encoder", "decoder"):
        parts = {
            **layer,
            **({f"cross_attention.{name}": shape for name, shape in cross.items()} if stack == "decoder" else {}),
        }
        around = [*norms, "cross_attention"] if stack == "decoder" else norms
        parts |= {f"around_{name}.norm.{kind}": (D,) for name in around for kind in ("weight", "bias")}
        shapes |= {f"{stack}.{i}.{name}": shape for i in range(setup.layers) for name, shape in parts.items()}
    return [
        (name, Weight(np.asarray(rng.normal(scale=D**-0.5, size=shape), dtype=np.float32)))
        for name, shape in shapes.items()
    ]


class Engine:
    """One batch at a time over all threads, or `parallel`: several batches at once."""

    def __init__(self, *, int8: bool = False, parallel: bool = False) -> None:
        self.int8, self.parallel = int8, parallel

    def prepare(self, setup: Setup, job: str) -> int:
        assert job == "decode", job
        self.setup, given = setup, weights(setup)
        config = TransformerConfig(
            width=setup.width, num_layers=setup.layers, num_heads=setup.heads, hidden=setup.hidden
        )
        sizes = {"source_size": setup.vocabulary, "target_size": setup.vocabulary}
        self.model = EngineModel(config, given, **sizes, bos=BOS, eos=EOS, int8=self.int8)
        self.session: Session | None = None
        return sum(tensor.data.size for _, tensor in given)

    def collate(self, batches: list[Sentences]) -> list[list[list[int]]]:
        return [[[*ids, EOS] for ids in batch.sources] for batch in batches]

    def decode_round(self, batches: list[list[list[int]]], beam: int) -> tuple[float, list[list[list[int]]]]:
        length = self.setup.output
        options = SearchOptions(beam=beam, min_length=length, max_length=length, scores=False)
        # A thread has at most the sentences of one batch at a time.
        self.session = Session(self.model, threads=self.setup.threads, rows=self.setup.sentences * beam, tokens=2**20)
        began = time.perf_counter()
        outputs: list[list[list[int]]] = [[[] for _ in batch] for batch in batches]
        for group in [list(enumerate(batches))] if self.parallel else [[one] for one in enumerate(batches)]:
            places = {
                self.session.add(ids, options, length, never=[BOS]): (number, place)
                for number, batch in group
                for place, ids in enumerate(batch)
            }
            while places:
                if (found := self.session.next(1000)) is not None:
                    number, place = places.pop(found[0])
                    outputs[number][place] = found[1][0].ids
        seconds = time.perf_counter() - began
        self.session.close()
        return seconds, outputs
