"""The hidden tests of the exercise schedule. Powers of 4 have square roots without a remainder."""

from regard.learn.expecting import Program, expect


def test_peak(own: Program) -> None:
    """The rate is highest at the end of the warm-up: 1 / √(d_model · warmup_steps)."""
    expect(own.lrate(100, 4, 100), 0.05, given="lrate(100, d_model = 4, warmup_steps = 100)")


def test_growth(own: Program) -> None:
    """It grows linearly before: half of the peak at half of the warm-up."""
    expect(own.lrate(50, 4, 100), 0.025, given="lrate(50, d_model = 4, warmup_steps = 100)")


def test_first_step(own: Program) -> None:
    """The first step has the peak divided by warmup_steps, and not zero."""
    expect(own.lrate(1, 4, 100), 0.0005, given="lrate(1, d_model = 4, warmup_steps = 100)")


def test_decay(own: Program) -> None:
    """It decays with the inverse square root of the step: half of the peak after four times the warm-up."""
    expect(own.lrate(400, 4, 100), 0.025, given="lrate(400, d_model = 4, warmup_steps = 100)")


def test_width(own: Program) -> None:
    """A model that is four times as wide has half the rate."""
    expect(own.lrate(400, 16, 100), 0.0125, given="lrate(400, d_model = 16, warmup_steps = 100)")


def test_paper(own: Program) -> None:
    """The base model of the paper, d_model = 512 and 4,000 steps of warm-up, has a peak of about 0.0007."""
    expect(own.lrate(4000, 512, 4000), (512 * 4000) ** -0.5, given="lrate(4000, d_model = 512, warmup_steps = 4000)")


def test_late(own: Program) -> None:
    """After the warm-up, the length of the warm-up no longer matters."""
    expect(own.lrate(10000, 4, 400), 0.005, given="lrate(10000, d_model = 4, warmup_steps = 400)")
