"""Laws of the coverage penalty: batches change nothing, and models without attention over the source are refused."""

import pytest
import torch

from regard.data.ragged import Ragged
from regard.decoding.coverage import LEAST, coverage_penalties, refuse_without_attention, source_attention
from regard.errors import DecodeError
from regard.explain.recorded import record_forced
from regard.models.base import TextSeq2Seq
from regard.nn.attention_log import ENCODER_DECODER
from regard.text.tokenizer import EOS

ROWS = [([5, 6, 7, 8], [4, 9]), ([9], [7, 7, 7, 8]), ([3, 4, 5], []), ([5, 6, 7, 8], [6, 5, 4])]


def attends(model):
    return isinstance(model, TextSeq2Seq) and bool(source_attention(model, [([3], [])]))


def expected(model, source, target):
    """One row by itself, from what `regard look` records."""
    with torch.no_grad():
        log, _ = record_forced(model, Ragged.from_lists([[*source, EOS]]), [*target, model.eos])
    last = [module for module in model.modules() if log.kinds.get(module) == ENCODER_DECODER][-1]
    attention_QS = torch.cat([call[0] for call in log.calls[last]], dim=1).mean(dim=0)
    assert len(attention_QS) == len(target) + 1
    return attention_QS.sum(dim=0)[: len(source)].clamp(LEAST, 1).log().sum().item()


def test_batches_change_nothing(model):
    if not attends(model):
        pytest.skip("it has no attention over the source")
    alone = [expected(model, *row) for row in ROWS]
    assert coverage_penalties(model, ROWS) == pytest.approx(alone, abs=1e-4)
    assert coverage_penalties(model, ROWS, budget=6) == pytest.approx(alone, abs=1e-4)
    assert min(alone) < 0
    # Tags in front of a source need not be covered.
    fewer = coverage_penalties(model, ROWS, tags=1)
    assert all(one >= other - 1e-4 for one, other in zip(fewer, alone, strict=True)) and fewer[1] == 0


def test_models_without_attention_are_refused_by_name(model):
    name = type(model).__name__
    if attends(model):
        refuse_without_attention(model)
        assert name not in ("ByteNet", "Pointer", "PointerLstm", "Decoder")
        return
    with pytest.raises(DecodeError, match=f"which this {name} has not"):
        refuse_without_attention(model)
