"""The engine in C finds what PyTorch finds, token for token in float32, for every option of a Transformer."""

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.search import search
from regard.engine.steps import Rows
from regard.errors import ConfigError
from regard.models import build_model
from regard.text.tokenizer import BOS, EOS
from tests.engine_models import engine_of, needs_engine, search_with_engine
from tests.laws.conftest import SIZES, SMALL, VARIANTS, VOCABULARY, trained_to_copy

pytestmark = needs_engine
SOURCES = [[3, 4, 5, 6, 7, EOS], [8, EOS], [5, 5, 9, 10, 3, 4, 8, 7, 6, EOS], [10, 9, EOS], [4, 4, 4, 4, 4, 4, EOS]]
MORE = {  # variants that no other family needs
    "none": {"positions": "none"},
    "silu": {"feed_forward": "silu"},
    "target": {"tie": "target"},
    "wide heads": {"key_width": 6, "value_width": 3, "window": 0},
    "no layers": {"num_layers": 0},
}
ALL = {**VARIANTS["transformer"], **MORE}
OPTIONS = {
    "greedy": SearchOptions(beam=1, token_scores=True, max_extra=6),
    "beam": SearchOptions(beam=4, nbest=4, token_scores=True, max_extra=6),
    "power": SearchOptions(beam=3, length_penalty=1.0, length_penalty_kind="power", early_stopping=False, max_extra=6),
    "never": SearchOptions(beam=4, nbest=2, early_stopping="never", min_length=3, max_extra=6),
    "short": SearchOptions(beam=4, nbest=3, max_length=2),
}


def _tables():
    for name, keys in ALL.items():
        if not keys.get("copy"):
            marks = [] if name in {"paper", "conv", "opennmt", "fairseq"} else [pytest.mark.slow]
            yield pytest.param({"kind": "transformer", **SMALL["transformer"], **keys}, id=name, marks=marks)


TABLES = list(_tables())


def make(table):
    """A model whose parameters are so large that no two outputs score nearly the same."""
    torch.manual_seed(1)
    model = build_model(table, **SIZES["translation"]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def assert_same(wanted, found):
    for one, other in zip(wanted, found, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        np.testing.assert_allclose([h.score for h in other], [h.score for h in one], rtol=1e-4, atol=1e-5)
        for first, second in zip(one, other, strict=True):
            assert (first.token_scores is None) == (second.token_scores is None)
            if first.token_scores is not None:
                np.testing.assert_allclose(second.token_scores, first.token_scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("table", TABLES)
def test_search_finds_what_pytorch_finds(table):
    model = make(table)
    engine = engine_of(model)
    for options in OPTIONS.values():
        wanted = search(model, Ragged.from_lists(SOURCES), options=options)
        for threads in (0, 1, 3):
            assert_same(wanted, search_with_engine(engine, SOURCES, options, threads=threads, rows=9))


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_trained_models_find_the_same(table, tmp_path_factory):
    model, loss = trained_to_copy(table, tmp_path_factory)
    assert loss < 0.95 * np.log(VOCABULARY - 3) or table["num_layers"] == 0  # which cannot see its source
    generator = np.random.default_rng(2)
    sources = [[*generator.integers(3, VOCABULARY, size=1 + number % 6).tolist(), EOS] for number in range(18)]
    engine = engine_of(model)
    for options in OPTIONS.values():
        wanted = search(model, Ragged.from_lists(sources), options=options)
        found = search_with_engine(engine, sources, options, threads=2)
        # A model that has learned little may score two of the further outputs equally.
        assert [best[0].ids for best in found] == [best[0].ids for best in wanted]
        scores = [[[one.score for one in best] for best in some] for some in (found, wanted)]
        for one, other in zip(*scores, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("table", TABLES)
def test_steps_give_the_logits_of_pytorch(table):
    """Over steps, expanded beams, reordered rows and dropped sentences."""
    model = make(table)
    rows = Rows(engine_of(model), SOURCES[:3], beams=2)
    with torch.inference_mode():
        state = model.start(model.encode(Ragged.from_lists(SOURCES[:3])), beams=2)
        for step, (count, order) in enumerate(
            [(3, [0, 1, 2]), (6, [1, 0, 2, 2, 4, 5]), (6, [0, 0, 4, 5]), (4, [1, 0, 3, 3])]
        ):
            tokens = np.arange(count) % (VOCABULARY - 3) + 3 if step else np.full(count, BOS)
            logits = rows.step(tokens)
            wanted = model.step(torch.from_numpy(tokens), state)
            np.testing.assert_allclose(logits, wanted.numpy(), rtol=2e-4, atol=2e-4)
            if step == 0:
                rows.expand_beams(), state.expand_beams()
                order = [0, 1, 2, 3, 4, 5]
            rows.reorder(np.array(order)), state.reorder(torch.tensor(order))


@pytest.mark.parametrize("table", TABLES)
def test_given_outputs_are_scored_as_by_pytorch(table):
    model = make(table)
    target = [7, 3, 9, 9, 4]
    found = engine_of(model).force(SOURCES[2], target, best=3, attention=True)
    with torch.inference_mode():
        memory = model.encode(Ragged.from_lists(SOURCES[2:3]))
        logp = model.decode(Ragged.from_lists([[BOS, *target]]), memory).log_softmax(dim=-1).numpy()
    np.testing.assert_allclose(found.logp, logp[np.arange(6), [*target, EOS]], rtol=1e-4, atol=1e-4)
    assert found.columns.tolist() == np.argsort(-logp, axis=-1)[:, :3].tolist()
    for weights in found.attention:
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("int8", [False, True])
def test_neighbours_change_nothing(int8):
    engine = engine_of(make({"kind": "transformer", **SMALL["transformer"]}), int8=int8)
    options = SearchOptions(beam=3, nbest=3)
    alone = [search_with_engine(engine, [source], options)[0] for source in SOURCES]
    assert alone == search_with_engine(engine, SOURCES, options)
    assert alone == search_with_engine(engine, SOURCES, options, threads=2, rows=3)


def test_a_model_that_copies_is_refused():
    model = make({"kind": "transformer", **SMALL["transformer"], "copy": True})
    with pytest.raises(ConfigError, match="copy is 1"):
        engine_of(model)
