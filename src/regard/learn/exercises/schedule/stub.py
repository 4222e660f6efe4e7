"""What the exercise schedule starts from."""


def lrate(step_num: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate of equation 3. Steps are counted from 1."""
    raise NotImplementedError
