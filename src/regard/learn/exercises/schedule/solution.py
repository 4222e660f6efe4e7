"""A solution of the exercise schedule."""


def lrate(step_num: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate of equation 3. Steps are counted from 1."""
    return float(d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5))
