"""The process that trains one side of an ablation: `python -m regard.learn.ablated_training FOLDER DATA < RECIPE`.

Exit status: 0 if the run is finished; 1 after an error, which stderr explains; 3 if training could not continue, because the
gradient was not finite; 4 if a signal stopped it.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from regard.config import Recipe
from regard.errors import Diverged, RegardError
from regard.learn.ablations import KIND
from regard.process_end import end_process
from regard.signals import STOPPING
from regard.toml import from_table, parse_toml

FAILED, DIVERGED, STOPPED = 1, 3, 4


def main() -> int:
    # Here, because `regard ablate` imports this file for the exit status alone, and PyTorch takes seconds.
    from regard import api
    from regard.learn.ablated_models import register

    folder, data = sys.argv[1:]
    recipe = from_table(Recipe, parse_toml(sys.stdin.buffer.read(), origin="stdin"), where="")
    kind = str(recipe.model["kind"])
    if kind.startswith(KIND):
        register(kind.removeprefix(KIND))
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    for one in STOPPING:
        signal.signal(one, stop)
    try:
        done = api.train(
            recipe,
            out=folder,
            data=data or None,
            listen=lambda event: None,
            stop=lambda: stopped,
            warn=lambda text: None,
        )
    except RegardError as error:
        print(error, file=sys.stderr)
        return DIVERGED if isinstance(error, Diverged) else FAILED
    return 0 if done.finished else STOPPED


if __name__ == "__main__":
    end_process(main())
