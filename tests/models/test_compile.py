"""`torch.compile` takes a model as it is."""

import pytest
import torch

from regard.data.batch import make_batch
from regard.models import build_model

pytestmark = pytest.mark.slow


# Dynamo warns of caches and of calls that it does not trace.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_model_has_the_loss_and_the_gradients_of_the_plain_one():
    torch.manual_seed(0)
    table = {"kind": "transformer", "width": 8, "num_layers": 1, "num_heads": 2, "hidden": 16, "dropout": 0.0}
    model = build_model(table, source_size=11, target_size=11)
    batch = make_batch([[5, 6, 7], [8, 9]], [[4, 5, 6, 7], [9, 10]])
    found = []
    for called in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        loss = called(batch, smoothing=0.1)
        loss.backward()
        found.append((loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    torch.testing.assert_close(*found)
