"""Linear CKA on matrices whose similarity is known, and states of models that can be computed another way."""

import math

import pytest
import torch

from regard.explain.head_importance import Examples
from regard.explain.layer_similarity import (
    layer_states,
    linear_cka,
    noise_similarity,
    position_similarity,
    similarities,
)
from regard.models.transformer import Transformer

# Sources of 4, 3 and 2 tokens, outputs of 3, 2 and 4.
EXAMPLES = Examples([[5, 6, 7, 2], [8, 9, 2], [4, 2]], [[9, 8, 2], [7, 2], [5, 6, 3, 2]])


def quiet(*_):
    pass


def noise(rows, columns, seed):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def make_model(width, num_layers=2, norm_order="post"):
    torch.manual_seed(width)
    sizes = {"source_size": 20, "target_size": 20}
    return Transformer(
        **sizes, width=width, num_heads=2, num_layers=num_layers, hidden=32, dropout=0.0, norm_order=norm_order
    ).eval()


def test_a_matrix_is_like_itself_rotated_scaled_and_shifted():
    x = noise(50, 8, seed=1)
    rotation, _ = torch.linalg.qr(noise(8, 8, seed=2))
    for same in (x, x @ rotation, 3.5 * x, -x, x + 7, x[:, [3, 1, 0, 2, 7, 6, 5, 4]]):
        assert linear_cka(x, same) == pytest.approx(1, abs=1e-5)


def test_other_linear_maps_make_a_difference():
    x = noise(50, 8, seed=1)
    assert linear_cka(x, x * torch.tensor([10.0, 1, 1, 1, 1, 1, 1, 1])) < 0.9


def test_two_columns_are_the_square_of_their_correlation():
    # x and y are centred; x·y = 2, x·x = 2, y·y = 8 - so r² = 4 / 16.
    x, y = torch.tensor([[-1.0], [1], [0], [0]]), torch.tensor([[-1.0], [1], [-1.7320508], [1.7320508]])
    assert linear_cka(x, y) == pytest.approx(4 / 16)


def test_independent_noise_has_its_known_small_value():
    found = [linear_cka(noise(500, 20, seed), noise(500, 5, seed + 100)) for seed in range(20)]
    expected = noise_similarity(500, 20, 5)
    assert expected == pytest.approx(math.sqrt(20 * 5 / (520 * 505)))
    assert sum(found) / 20 == pytest.approx(expected, rel=0.1)
    assert max(found) < 2 * expected


def test_it_is_symmetric_and_a_constant_is_like_nothing():
    x, y = noise(30, 4, seed=1), noise(30, 9, seed=2)
    assert linear_cka(x, y) == pytest.approx(linear_cka(y, x))
    assert linear_cka(x, torch.ones(30, 4)) == 0


def test_states_are_the_input_and_each_layers_output():
    model = make_model(16)
    states = layer_states(model, EXAMPLES, quiet)
    # Tokens of 4 + 3 + 2 sources and of 3 + 2 + 4 outputs; the input and two layers.
    assert [one.shape for one in states["encoder"].layers] == [(9, 16)] * 3
    assert [one.shape for one in states["decoder"].layers] == [(9, 16)] * 3
    # Post-norm has no norm at the end: the last state is what the decoder reads.
    [(source, _)] = EXAMPLES.batches()
    torch.testing.assert_close(states["encoder"].layers[-1], model.encode(source).values)
    assert not torch.allclose(states["encoder"].layers[0], states["encoder"].layers[1])
    # Batches are sorted by length: the last pair comes first.
    assert (states["encoder"].lengths, states["decoder"].lengths) == ([2, 4, 3], [4, 3, 2])


def test_a_model_is_like_itself_and_hooks_are_removed():
    model = make_model(16, norm_order="pre")
    states = layer_states(model, EXAMPLES, quiet)["encoder"].layers
    grid = similarities(states, layer_states(model, EXAMPLES, quiet)["encoder"].layers)
    assert [grid[layer][layer] for layer in range(3)] == pytest.approx([1, 1, 1])
    assert grid[0][2] == pytest.approx(grid[2][0])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_models_of_other_widths_and_depths_are_compared():
    small, large = (layer_states(make_model(*size), EXAMPLES, quiet) for size in ((16, 1), (24, 3)))
    grid = similarities(small["decoder"].layers, large["decoder"].layers)
    assert (len(grid), len(grid[0])) == (2, 4)
    assert all(0 < value < 1 for row in grid for value in row)


def test_positions_are_alike_by_the_mean_cosine_within_a_sentence():
    # Cosines of the first sentence: 1, 0, 0 in both orders; of the second -1; the third has one position only.
    x = torch.tensor([[1.0, 0], [3, 0], [0, 2], [1, 1], [-2, -2], [5, 0]])
    assert position_similarity(x, [3, 2, 1]) == pytest.approx((1 / 3 - 1) / 2)
    assert position_similarity(x[:1], [1]) == 0


@pytest.mark.parametrize(
    ("order", "gain", "depth", "expected"),
    [
        ("post", 1.0, 2, 0.63),
        ("post", 1.0, 4, 0.88),
        ("post", 1.0, 6, 0.97),
        ("post", 1.0, 8, 0.99),
        ("post", 0.5, 8, 0.67),
        ("pre", 1.0, 8, 0.75),
    ],
)
def test_positions_of_a_deep_post_norm_encoder_are_alike_before_training(order, gain, depth, expected):
    """The numbers of docs/look.md: where positions are alike, attention has nothing to choose from."""
    found = []
    for seed in range(1, 6):
        torch.manual_seed(seed)
        words = [[*ids, 2] for ids in torch.randint(4, 8000, (40, 12)).tolist()]
        options = {"num_layers": depth, "norm_order": order, "sublayer_gain": gain}
        model = Transformer(source_size=8000, target_size=8000, width=128, hidden=512, num_heads=8, **options).eval()
        states = layer_states(model, Examples(words, [[2]] * 40), quiet)["encoder"]
        found.append(states.position_similarity()[-1])
    assert sum(found) / 5 == pytest.approx(expected, abs=0.01)
