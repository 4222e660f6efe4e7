"""`Trainer` by hand: made-up columns, no recipe, and any PyTorch optimizer and scheduler."""

import json
import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.optim import SGD, AdamW
from torch.optim import lr_scheduler as schedulers

import regard
from regard.config import TrainConfig
from regard.data.batch import ADDED, collate_pairs, make_batch
from regard.data.batch_sampler import Position
from regard.data.columns import pair_columns
from regard.errors import CheckpointError, ConfigError
from regard.training.data_parallel import DistributedModel
from regard.training.events import Progress, Validation
from regard.training.optimizer_state import pack, unpack
from regard.training.optimizers import Adam, Muon
from regard.training.step import read, training_step
from regard.training.training_state import TrainingState

SHAPE = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 32, "dropout": 0.1}
STEPS = 12


def fresh_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return regard.Transformer(source_size=12, target_size=12, **SHAPE)


def fresh_loader():
    random = np.random.default_rng(0)
    sequences = [random.integers(3, 12, length).tolist() for length in random.integers(1, 8, 200)]
    columns = pair_columns(regard.Column.from_lists(sequences), regard.Column.from_lists(sequences))
    return regard.Loader(lambda epoch: columns, collate_pairs, added=ADDED, budget=64, max_length=10, seed=1)


def trainer_in(folder, make_optimizer=None, make_scheduler=None, *, steps=STEPS, stop_after=None, **options):
    """A trainer of a small model, and the list of its events."""
    model, events = fresh_model(), []
    optimizer = None if make_optimizer is None else make_optimizer(model)
    scheduler = None if make_scheduler is None else make_scheduler(optimizer)
    config = TrainConfig(steps=steps, checkpoint_every=5, log_every=1, warmup_steps=10, clip_norm=1.0)
    trainer = regard.Trainer(
        model,
        fresh_loader(),
        config,
        str(folder),
        optimizer=optimizer,
        scheduler=scheduler,
        listen=events.append,
        stop=lambda: trainer.counters.step == stop_after,
        **options,
    )
    return trainer, events


def sgd(model):
    return SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def adamw(model):
    return AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def two_groups(model):
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    return AdamW([{"params": matrices}, {"params": others, "lr": 0.001, "weight_decay": 0.0}], lr=0.01)


def our_adam(model):
    return Adam(model.parameters(), lr=0.01, weight_decay=0.1, decoupled=True)


def one_cycle(optimizer):
    return schedulers.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS)


def halving(optimizer):
    return schedulers.LambdaLR(optimizer, lambda step: 0.5**step)


def warmup_then_steps(optimizer):
    warmup = schedulers.LinearLR(optimizer, start_factor=0.1, total_iters=8)
    return schedulers.SequentialLR(optimizer, [warmup, schedulers.MultiStepLR(optimizer, [2])], milestones=[8])


def plateau(optimizer):
    return schedulers.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)


def weights_of(folder):
    return load_file(folder / "final" / "weights.safetensors")


def test_a_model_is_trained_on_made_up_columns_without_a_recipe(tmp_path):
    trainer, events = trainer_in(tmp_path / "run", steps=60)
    assert trainer.fit()
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert len(losses) == 60 and losses[-1] < 0.9 * losses[0]
    for name, weight in trainer.model.named_parameters():
        assert torch.equal(weights_of(tmp_path / "run")[name], weight)


@pytest.mark.slow(unless=["sgd-None", "adamw-one_cycle", "two_groups-warmup_then_steps", "Muon-halving"])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [
        (sgd, None),
        (sgd, one_cycle),
        (adamw, one_cycle),
        (adamw, halving),
        (two_groups, warmup_then_steps),
        (adamw, plateau),
        (adamw, lambda optimizer: lambda step: 0.01 / step),
        (our_adam, one_cycle),
        (Muon, halving),
        (None, lambda optimizer: lambda step: 0.01 / step),
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, optimizer, scheduler):
    def validate(model):
        return Validation({"loss": 1.0}, ())

    uninterrupted, expected = trainer_in(tmp_path / "one", optimizer, scheduler, validate=validate)
    assert uninterrupted.fit()
    for stop_after in (3, 7, None):
        part, events = trainer_in(tmp_path / "parts", optimizer, scheduler, validate=validate, stop_after=stop_after)
        assert part.fit() == (stop_after is None)
    ours, theirs = weights_of(tmp_path / "one"), weights_of(tmp_path / "parts")
    assert all(ours[name].equal(theirs[name]) for name in ours)
    rates = [event.rate for event in events if isinstance(event, Progress)]
    assert rates == [event.rate for event in expected if isinstance(event, Progress)][7:]


def test_clipping_and_steps_are_those_of_a_plain_pytorch_loop(tmp_path):
    trainer, events = trainer_in(tmp_path / "run", sgd, one_cycle)
    assert trainer.fit()
    rates = [event.rate for event in events if isinstance(event, Progress)]
    model = fresh_model().train()
    optimizer = sgd(model)
    scheduler = one_cycle(optimizer)
    for number, (batch, _) in enumerate(islice(fresh_loader().batches(Position()), STEPS)):
        model.noise.seed(1, number)
        model.noise.part(0)
        loss = model(batch, smoothing=0.1)
        (loss / batch.num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert rates[number] == optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weights_of(tmp_path / "run")[name], weight.detach(), rtol=1e-4, atol=1e-5)


def test_a_step_with_a_gradient_that_is_not_finite_changes_neither_weights_nor_state():
    model, config = fresh_model(), TrainConfig(clip_norm=1.0)
    optimizer, distributed, batch = sgd(model), DistributedModel(model, smoothing=0.0), [make_batch([[5, 6]], [[7]])]
    training_step(distributed, optimizer, batch, config)
    with torch.no_grad():
        model.target_embedding[0, 0] = math.nan

    def everything():
        buffers = [optimizer.state[one]["momentum_buffer"] for one in model.parameters()]
        return [one.detach().nan_to_num(9.0) for one in [*model.parameters(), *buffers]]

    before = [one.clone() for one in everything()]
    (cost,) = read([training_step(distributed, optimizer, batch, config)])
    assert not cost.finite
    assert all(torch.equal(old, new) for old, new in zip(before, everything(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_plateau_lowers_the_rate_after_validations_that_are_no_better(tmp_path):
    trainer, events = trainer_in(tmp_path / "run", adamw, plateau, validate=lambda model: Validation({"loss": 1.0}, ()))
    trainer.fit()
    rates = [event.rate for event in events if isinstance(event, Progress)]
    assert rates == [0.01] * 10 + [0.005] * 2  # validations after steps 5, 10 and 12


def test_checkpoints_hold_the_optimizer_as_tensors_by_parameter_name_and_finite_json(tmp_path):
    trainer, _ = trainer_in(tmp_path / "run", adamw, plateau, stop_after=5)
    trainer.fit()
    folder = tmp_path / "run" / "checkpoints" / "step-00000005"
    tensors = load_file(folder / "training.safetensors")
    names = [name for name, _ in trainer.model.named_parameters()]
    assert set(tensors) == {f"optimizer/{name}/{key}" for name in names for key in ("step", "exp_avg", "exp_avg_sq")}
    counters = json.loads((folder / "counters.json").read_text(), parse_constant=pytest.fail)
    assert (counters["optimizer"]["kind"], counters["optimizer"]["scheduler_kind"]) == ("AdamW", "ReduceLROnPlateau")


@pytest.mark.parametrize(
    "value",
    [
        {"lr": 0.1, "betas": (0.9, 0.99), "step": 3, "foreach": None, "kind": "x", "on": True},
        {"best": math.inf, "worst": -math.inf, "milestones": Counter({3: 2}), "nested": [{"a": [1, (2,)]}]},
        {0: {"momentum": torch.arange(3.0), "count": torch.tensor(2)}},
    ],
)
def test_a_packed_state_is_json_and_unpacks_to_itself(value):
    tensors = {}
    packed = json.loads(json.dumps(pack(value, "here", tensors), allow_nan=False))
    result = unpack(packed, tensors)
    assert str(result) == str(value)
    assert list(tensors) == (["here/0/momentum", "here/0/count"] if 0 in value else [])


@pytest.mark.parametrize("packed", [{"tensor": "missing"}, {"other": 1}, {"dict": [[1]]}, {"dict": [[[], 1]]}, {}])
def test_a_damaged_state_is_refused(packed):
    with pytest.raises((LookupError, ValueError)):
        unpack(packed, {})


def test_functions_in_a_state_are_left_out():
    assert unpack(pack({"rate": 1, "function": abs, "lambda": lambda step: step}, "", {}), {}) == {"rate": 1}


def test_state_that_no_checkpoint_can_hold_is_refused_before_the_first_step(tmp_path):
    def make(model):
        optimizer = sgd(model)
        optimizer.param_groups[0]["plan"] = {1, 2}
        return optimizer

    with pytest.raises(ConfigError, match=r"cannot hold param_groups/0/plan, a set"):
        trainer_in(tmp_path / "run", make)


def test_an_optimizer_that_needs_a_closure_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="LBFGS computes the loss several times per step"):
        trainer_in(tmp_path / "run", lambda model: torch.optim.LBFGS(model.parameters()))


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="that is not one of the model"):
        trainer_in(tmp_path / "run", lambda model: sgd(fresh_model()))


def test_a_scheduler_of_another_optimizer_is_refused(tmp_path):
    other = sgd(fresh_model())
    with pytest.raises(ConfigError, match="the scheduler belongs to another optimizer"):
        trainer_in(tmp_path / "run", sgd, lambda optimizer: one_cycle(other))


def test_a_custom_optimizer_is_refused_where_weights_are_sharded():
    model = fresh_model()
    distributed = DistributedModel(model, smoothing=0.0)
    distributed.sharded = True
    with pytest.raises(ConfigError, match="shards replaces the parameters"):
        TrainingState(distributed, TrainConfig(), optimizer=sgd(model))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((sgd, None), (adamw, None), "holds the state of SGD with the scheduler NoneType, not of AdamW"),
        ((sgd, one_cycle), (sgd, halving), "with the scheduler OneCycleLR, not of SGD with LambdaLR"),
        ((adamw, None), (two_groups, None), "different number of parameter groups"),
        ((None, None), (sgd, None), "was trained with the recipe's optimizer"),
        ((sgd, None), (None, None), "was trained with an optimizer of the caller"),
    ],
)
def test_a_run_is_not_resumed_with_another_optimizer(tmp_path, first, second, message):
    trainer_in(tmp_path / "run", *first, stop_after=3)[0].fit()
    with pytest.raises(CheckpointError, match=message):
        trainer_in(tmp_path / "run", *second)[0].fit()
