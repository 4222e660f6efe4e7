"""A step captured as a CUDA graph computes what the uncaptured step computes, dropout included. Needs a GPU."""

from dataclasses import replace

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch_sampler import Position
from regard.data.word_alignment import Aligner
from regard.models import build_model
from regard.training.adapters import choose_parameters
from regard.training.cuda_graph import CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.loss_scale import FIRST, LARGEST, LossScale
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


@pytest.mark.parametrize(
    ("optimizer", "accumulate", "precision"),
    [
        *(("adam", 1, torch.bfloat16), ("adam", 2, torch.bfloat16), ("muon", 1, torch.bfloat16)),
        *(("muon", 2, torch.bfloat16), ("adam", 1, torch.float16), ("muon", 2, torch.float16)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", TABLES)
def test_captured_steps_equal_uncaptured_steps(kind, optimizer, accumulate, precision):
    loader = loader_for(kind, 4_000, budget=4096)
    block = next(loader.blocks_of_rows(Position()))
    batches = [batch for batch, _ in replace(block, rows=block.rows.cuda()).batches()]
    assert (len({batch.shape for batch in batches}) > 1) == (kind in SIMILAR_LENGTHS)
    steps = 10 if len(loader.shapes) == 1 else 40
    curves, weights, scales = [], [], []
    for graph in (True, False):
        torch.manual_seed(0)
        model = build(kind).cuda().train()
        config = TrainConfig(graph=graph, optimizer=optimizer, accumulate=accumulate, clip_norm=1.0, seed=3)
        notes = []
        scale = LossScale(torch.device("cuda"), good_steps=8) if precision == torch.float16 else None
        step = CudaGraphStep(
            DistributedModel(model, smoothing=config.label_smoothing, loss_scale=scale),
            make_optimizer(model, config),
            config,
            precision=precision,
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
        scales.append(None if scale is None else (scale.scale.item(), scale.good_steps.item()))
    assert scales[0] == scales[1]
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)
    assert ((weights[0] - weights[1]).norm() / weights[1].norm()).item() < 1e-3
    if kind not in ("classifier", "pointer"):  # whose labels are random
        assert curves[0][-1] < curves[0][0]


def captured_step(config, *, adapters=False, scale=None):
    """Return a model, a function that takes a step with it, and its adapters. The fourth step is captured."""
    loader = loader_for("transformer", 2_000, budget=4096)
    block = next(loader.blocks_of_rows(Position()))
    batches = [batch for batch, _ in replace(block, rows=block.rows.cuda()).batches()]
    torch.manual_seed(0)
    model = build("transformer").cuda().train()
    made = choose_parameters(model, config) if adapters else None
    distributed = DistributedModel(model, smoothing=0.1, adapters=made, loss_scale=scale)
    precision = torch.bfloat16 if scale is None else torch.float16
    optimizer = make_optimizer(model, config, adapters=made)
    step = CudaGraphStep(distributed, optimizer, config, precision=precision, note=lambda text: None)

    def take(number):
        model.noise.seed(config.seed, number)
        return step([batches[number % len(batches)]], rate=1e-3)

    return model, take, made


def weights_of(model):
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def test_a_captured_step_that_overflows_is_skipped_without_the_host():
    scale = LossScale(torch.device("cuda"))
    model, take, _ = captured_step(TrainConfig(clip_norm=1.0), scale=scale)
    for number in range(6):
        take(number)
    before = weights_of(model)
    # Far above what float16 holds, so that a gradient overflows in the replayed graph.
    scale.scale.fill_(2.0**60)
    (result,) = read([take(6)])
    assert result.overflowed and result.loss_scale == 2.0**60
    assert all(torch.equal(one, before[name]) for name, one in weights_of(model).items())
    assert scale.scale.item() == LARGEST
    scale.scale.fill_(FIRST)
    (result,) = read([take(7)])
    assert result.finite
    assert not all(torch.equal(one, before[name]) for name, one in weights_of(model).items())


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_captured_steps_with_adapters_equal_uncaptured_ones(half):
    found = []
    for graph in (True, False):
        config = TrainConfig(graph=graph, init="base", adapt="lora", lora_rank=4, clip_norm=1.0)
        scale = LossScale(torch.device("cuda")) if half == torch.float16 else None
        model, take, adapters = captured_step(config, adapters=True, scale=scale)
        before = weights_of(model)
        losses = [one.loss / one.tokens for one in read([take(number) for number in range(10)])]
        after = weights_of(model)
        changed = {name for name, one in after.items() if not torch.equal(one, before[name])}
        assert changed == set(adapters.adapters) and losses[-1] < losses[0]
        found.append(losses)
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_captured_steps_leave_frozen_parameters_alone(half):
    scale = LossScale(torch.device("cuda")) if half == torch.float16 else None
    model, take, _ = captured_step(TrainConfig(freeze=("encoder", "decoder.0")), adapters=True, scale=scale)
    before = weights_of(model)
    for number in range(8):
        take(number)
    changed = {name for name, one in weights_of(model).items() if not torch.equal(one, before[name])}
    assert changed == {name for name in before if not name.startswith(("encoder.", "decoder.0."))}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", TABLES)
def test_dummy_tokens_change_neither_loss_nor_gradients(kind, half):
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
        with torch.autocast("cuda", half):
            loss = model(packed, smoothing=0.1)
        loss.backward()
        results.append((loss.item(), torch.cat([one.grad.flatten() for one in model.parameters()])))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    assert results[0][1].isfinite().all()
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-2, atol=1e-3)
