"""When any one allocation of the engine fails, a call fails or gives what it always gives, never something else."""

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.config import SearchOptions
from regard.engine import bindings, build
from regard.engine.session import Session
from regard.engine.steps import Rows
from regard.errors import ConfigError, DecodeError
from regard.models import build_model
from regard.models.transformer import Transformer
from regard.text.tokenizer import BOS, EOS
from tests.engine_models import engine_of

ENGINE = Path(build.__file__).parent
SIZE = 40
SOURCES = [[3, 4, 5, 6, 7, EOS], [8, EOS]]
LIMIT = 18  # more tokens than sentences have room for at first
SMALL = {"kind": "transformer", "width": 8, "num_layers": 1, "num_heads": 2, "hidden": 12, "dropout": 0.0}
NOWHERE = 10**9  # allocations; no call makes so many
MODELS = {
    "sinusoids": {},
    "rotary": {"positions": "rotary"},
    "learned": {"positions": "learned", "max_positions": 64},
    "conv": {"feed_forward": "conv"},
    "swiglu": {"feed_forward": "swiglu"},
}
SEARCHES = {
    "greedy": (SearchOptions(beam=1), {}),
    "beam": (SearchOptions(beam=3, nbest=2, early_stopping=False, token_scores=True), {}),
    "sample": (SearchOptions(beam=2, nbest=2, sample=True, top_k=5, top_p=0.8), {"numbers": np.full((2, LIMIT), 0.6)}),
    "shortlist": (SearchOptions(beam=2), {"allowed": [EOS, *range(3, SIZE, 2)]}),
}


@pytest.fixture(scope="module")
def fail_after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], bool]]:
    """Compile the engine with allocations that fail on demand, and use it in place of the installed one."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("engine")
    names = [f"-D{name}=failing_{name}" for name in ("malloc", "calloc", "realloc", "posix_memalign")]
    sources = [*sorted(ENGINE.glob("*.c")), Path(__file__).with_name("failing_allocations.c")]
    library = folder / build.library_name()
    command = ["cc", *build.FLAGS, "-O0", *names, "-DREGARD_SET=scalar", f"-I{ENGINE}", "-shared", "-o", str(library)]
    done = subprocess.run([*command, *map(str, sources), "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bindings, "LIBRARY", library)
        bindings.library.cache_clear()
        function = ctypes.CDLL(str(library)).fail_after
        function.argtypes = [ctypes.c_longlong]
        yield lambda count: bool(function(count))
        gc.collect()
    bindings.library.cache_clear()


@cache
def torch_model(name: str) -> Transformer:
    torch.manual_seed(3)
    return build_model({**SMALL, **MODELS[name]}, source_size=SIZE, target_size=SIZE).eval()


def check(fail_after: Callable[[int], bool], name: str, call: Callable, *, int8: bool = False) -> None:
    """Compare what a call gives with each of its allocations failing; None: it failed."""
    fail_after(NOWHERE)
    wanted, failures = call(engine_of(torch_model(name), int8=int8)), 0
    for count in range(NOWHERE):
        model = engine_of(torch_model(name), int8=int8)  # a new one, which has not computed positions yet
        fail_after(count)
        found = call(model)
        if not fail_after(NOWHERE):
            break
        for one, right in zip(found, wanted, strict=True):
            assert one is None or one == right, count
            failures += one is None
    assert failures > 10


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", SEARCHES)
def test_searches(fail_after, name, int8):
    options, more = SEARCHES[name]

    def search(model):
        try:
            session = Session(model, threads=0)
        except ConfigError:
            return [None] * len(SOURCES)
        tickets = []
        for source in SOURCES:
            try:
                tickets.append(session.add(source, options, LIMIT, **more))
            except DecodeError:
                tickets.append(None)
        found = {}
        while len(found) < len([one for one in tickets if one is not None]):
            ticket, best = session.next(10_000)
            found[ticket] = best
        session.close()
        return [found.get(ticket) for ticket in tickets]

    check(fail_after, "sinusoids", search, int8=int8)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_steps(fail_after, name):
    def steps(model):
        found = []
        try:
            rows = Rows(model, SOURCES, beams=2)
            tokens = np.full(len(SOURCES), BOS)
            for step in range(LIMIT):
                found.append(rows.step(tokens).tolist())
                if not step:
                    rows.expand_beams()
                tokens = np.arange(2 * len(SOURCES)) + 3
        except DecodeError:
            pass
        return [*found, *[None] * (LIMIT - len(found))]

    check(fail_after, name, steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_given_outputs(fail_after, name):
    def force(model):
        try:
            found = model.force(SOURCES[0], [7, 8, 9], best=3, attention=True)
        except DecodeError:
            return [None]
        return [[part.tolist() for part in (found.logp, found.columns, found.values, *found.attention)]]

    check(fail_after, name, force)
