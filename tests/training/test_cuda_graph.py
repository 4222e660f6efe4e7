"""A step captured as a CUDA graph computes what the uncaptured step computes, dropout included. Needs a GPU."""

from dataclasses import replace

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch_sampler import Position
from regard.data.fertilities import Aligner
from regard.models import build_model
from regard.training.cuda_graph import CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer, read
from tests.data import test_batch_structure
from tests.data.test_packing import loader_of, sides_of

pytestmark = pytest.mark.gpu


TABLES = {
    "transformer": {"kind": "transformer", "preset": "tiny", "num_layers": 2, "dropout": 0.1, "attention_dropout": 0.1},
    "convs2s": {"kind": "convs2s", "preset": "tiny", "dropout": 0.1},
    "bytenet": {"kind": "bytenet", "preset": "tiny", "dropout": 0.1},
    "cmlm": {"kind": "cmlm", "preset": "tiny", "dropout": 0.1},
    "nat": {"kind": "nat", "preset": "tiny", "dropout": 0.1},
    "rnn": {"kind": "rnn", "preset": "tiny", "num_layers": 2, "dropout": 0.1},
    "rnn at once": {"kind": "rnn", "preset": "tiny", "attention": "general", "input_feeding": False, "dropout": 0.1},
    "rnn local": {"kind": "rnn", "preset": "tiny", "attention": "concat", "window": 4, "cell": "gru", "dropout": 0.1},
    "rnn none": {"kind": "rnn", "preset": "tiny", "attention": "none", "bidirectional": False, "dropout": 0.1},
}
LABELLED = {"width": 64, "num_layers": 2, "num_heads": 4, "hidden": 128, "dropout": 0.1}
TABLES |= {kind: {"kind": kind, **LABELLED} for kind in ("tagger", "classifier", "pointer")}
# The examples of tasks that are not translation, and the sizes of their models.
TASKS = {
    "tagger": ("tags", {"source_size": 9, "num_labels": 9}),
    "classifier": ("classes", {"source_size": 9, "num_labels": 9}),
    "pointer": ("points", {"input_width": 2}),
}
SIMILAR_LENGTHS = [kind for kind in TABLES if kind.startswith("rnn")]


def loader_for(kind, num_pairs, budget):
    if kind in TASKS:
        return test_batch_structure.loader_for(TASKS[kind][0], budget=budget, count=num_pairs)[1]
    sides = sides_of(num_pairs)
    if kind == "nat":
        sides = Aligner.learn(sides).add_to(sides)
    return loader_of(sides, budget=budget, similar_lengths=kind in SIMILAR_LENGTHS)


def build(kind, **options):
    _, sizes = TASKS.get(kind, ("", {"source_size": 1000, "target_size": 1000}))
    return build_model({**TABLES[kind], **options}, **sizes)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", TABLES)
def test_captured_steps_equal_uncaptured_steps(kind, optimizer, accumulate):
    loader = loader_for(kind, 4_000, budget=4096)
    block = next(loader.blocks_of_rows(Position()))
    batches = [batch for batch, _ in replace(block, rows=block.rows.cuda()).batches()]
    assert (len({batch.shape for batch in batches}) > 1) == (kind in SIMILAR_LENGTHS)
    steps = 10 if len(loader.shapes) == 1 else 40
    curves, weights = [], []
    for graph in (True, False):
        torch.manual_seed(0)
        model = build(kind).cuda().train()
        config = TrainConfig(graph=graph, optimizer=optimizer, accumulate=accumulate, clip_norm=1.0, seed=3)
        notes = []
        step = CudaGraphStep(
            DistributedModel(model, smoothing=config.label_smoothing),
            make_optimizer(model, config),
            config,
            precision=torch.bfloat16,
            note=notes.append,
        )
        results = []
        for number in range(steps):
            model.noise.seed(config.seed, number)
            taken = [batches[(number * accumulate + i) % len(batches)] for i in range(accumulate)]
            results.append(step(taken, rate=1e-3 * (number + 1) / steps))
        curves.append([cost.loss / cost.tokens for cost in read(results)])
        weights.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
        assert ("captured as one CUDA graph" in "".join(notes)) == graph
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)
    assert ((weights[0] - weights[1]).norm() / weights[1].norm()).item() < 1e-3
    if kind not in ("classifier", "pointer"):  # whose labels are random
        assert curves[0][-1] < curves[0][0]


@pytest.mark.parametrize("kind", TABLES)
def test_dummy_tokens_change_neither_loss_nor_gradients(kind):
    """The same sentences, followed by other dummy tokens, have the same loss and gradients, and no NaN."""
    from regard.data.packed_rows import unpack

    loader = loader_for(kind, 40, budget=8192)  # one batch, mostly dummies
    batch, _ = next(loader.batches(Position()))
    row = batch.row.cuda()
    model = build(kind, dropout=0.0).cuda()
    # cuDNN computes gradients only in training mode, in which mask-predict is random.
    model.train(kind in SIMILAR_LENGTHS)
    results = []
    for dummy in (2, 7):
        other = row.clone()
        packed = unpack(other, batch.shape, batch.num_tokens)
        for field in (packed.source, packed.target):
            if field is not None:
                field.values[int(field.layout.offsets[40]) :] = dummy  # after the 40 examples
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(packed, smoothing=0.1)
        loss.backward()
        results.append((loss.item(), torch.cat([one.grad.flatten() for one in model.parameters()])))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    assert results[0][1].isfinite().all()
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-2, atol=1e-3)
