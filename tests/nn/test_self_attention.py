"""Self-attention does not depend on the order of its input, unless there are positions."""

import torch

from regard.data.ragged import Ragged
from regard.models import build_model


def encode(positions, ids):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        table = {
            "kind": "transformer",
            "width": 16,
            "num_layers": 2,
            "num_heads": 2,
            "hidden": 32,
            "positions": positions,
        }
        model = build_model(table, source_size=12, target_size=12).eval()
    with torch.no_grad():
        return model.encode(Ragged.from_lists([ids])).values


IDS = [4, 9, 7, 5, 11]
ORDER = [3, 1, 4, 0, 2]


def test_without_positions_a_permuted_source_gives_the_permuted_result():
    plain = encode("none", IDS)
    permuted = encode("none", [IDS[i] for i in ORDER])
    torch.testing.assert_close(permuted, plain[ORDER], rtol=1e-4, atol=1e-5)


def test_with_positions_a_permuted_source_gives_another_result():
    for positions in ("sinusoid", "learned", "rotary"):
        plain = encode(positions, IDS)
        permuted = encode(positions, [IDS[i] for i in ORDER])
        assert (permuted - plain[ORDER]).abs().max() > 0.01, positions
