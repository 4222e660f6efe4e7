"""Tails of Student's t and of the F distribution, which statistical tests need, without SciPy.

Both are values of the regularized incomplete beta function (Abramowitz and Stegun 1964, 26.5 to 26.7).
"""

from __future__ import annotations

import functools
import math

TINY = 1e-300  # replaces a zero that would be divided by
PRECISION = 1e-15
MOST_TERMS = 10_000


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    # The fraction converges quickly below the mean of the distribution; above it, that of the other tail does.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)) of the incomplete beta function (26.5.8), from the front (Lentz 1976)."""
    value, above, below = 1.0, 1.0, 0.0
    for index in range(1, MOST_TERMS):
        m = index // 2
        if index % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1.0 / ((1.0 + term * below) or TINY)
        above = (1.0 + term / above) or TINY
        value *= above * below
        if abs(above * below - 1.0) < PRECISION:
            return value
    raise ArithmeticError(f"the incomplete beta function does not converge at x={x}, a={a}, b={b}")


def t_probability(t: float, freedom: float) -> float:
    """Return how probable a value of Student's t at least as far from 0 as `t` is, on either side."""
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@functools.lru_cache(maxsize=1_000)
def t_bound(probability: float, freedom: float) -> float:
    """Return the t that is exceeded on either side with this probability; the inverse of `t_probability`."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) > probability:
        low, high = high, 2 * high
    # Each step halves the range; 60 leave nothing that a float can tell apart.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) > probability else (low, middle)
    return (low + high) / 2


def f_probability(f: float, above: float, below: float) -> float:
    """Return how probable a ratio of variances of at least `f` is, with these degrees of freedom of the two."""
    return incomplete_beta(below / (below + above * f), below / 2, above / 2)
