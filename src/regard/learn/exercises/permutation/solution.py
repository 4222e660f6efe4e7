"""A solution of the exercise permutation."""

from collections.abc import Callable

from torch import Tensor


def difference(layer: Callable[[Tensor], Tensor], x: Tensor, order: Tensor) -> float:
    """Return how far a layer is from permutation equivariance on x [n, d], at most: 0 if it does not see the order.

    x[order] are the rows of x in another order.
    """
    return float((layer(x[order]) - layer(x)[order]).abs().max())


def permuted_attention(
    scores: Tensor, weights: Tensor, values: Tensor, P: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what scores, weights, values and output of self-attention become when its input x becomes P x.

    For x: scores S [n, n], weights A = softmax(S), values V [n, d], output A V. P is the matrix of a permutation.
    """
    # (P x W_Q)(P x W_K)ᵀ = P S Pᵀ. A softmax over the keys does not ask in which order they are, and PᵀP is the identity.
    return P @ scores @ P.T, P @ weights @ P.T, P @ values, P @ weights @ values
