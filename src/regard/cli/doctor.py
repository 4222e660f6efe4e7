"""regard doctor"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from regard.cli.terminal import console, printable
from regard.errors import install_command, pip_install
from regard.messages import counted


@dataclass(frozen=True)
class Extra:
    """Optional dependencies: the packages that are imported, and the feature that needs them."""

    packages: tuple[str, ...]
    feature: str


# By their names in pyproject.toml.
EXTRAS = {
    "serve": Extra(("fastapi", "uvicorn", "httptools"), "regard serve"),
    "rouge": Extra(("rouge-score",), "ROUGE, where evaluate.metrics of a recipe names it"),
    "plots": Extra(
        ("matplotlib",), "pictures (regard look --png and --svg, regard bench table1 --out, regard study show)"
    ),
    "images": Extra(("pillow",), "images of others as inputs (captioning)"),
    "track": Extra(("tensorboard",), "TensorBoard curves (train.tensorboard=true)"),
    "ray": Extra(("ray", "pyarrow"), "regard translate --ray"),
    "ctranslate2": Extra(("ctranslate2",), "regard export --to ctranslate2"),
    "huggingface": Extra(("transformers",), "regard export --to huggingface"),
    "onnx": Extra(("onnx", "onnxruntime"), "regard export --to onnx"),
    "parquet": Extra(("pyarrow",), "corpora in Parquet files"),
    "zstd": Extra(("zstandard",), "text compressed with zstd"),
    "tune": Extra(("optuna",), "regard tune"),
}
MODULES = {"pillow": "PIL", "rouge-score": "rouge_score"}  # packages that are imported under another name


@dataclass(frozen=True)
class Finding:
    """One property of this machine or run, whether it is good, and what to do if it is not."""

    name: str
    value: str
    good: bool
    advice: str = ""
    missing: bool = False  # an optional part that is not installed


def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run folder to check as well.", show_default=False)] = None,
) -> None:
    """Report what this machine has, what is slow or missing, and what to do about it; or whether a run is intact.

    Examples:

      regard doctor

      # compare every file of the run with its size and hash
      regard doctor runs/mine

    Exit status: 1 if a file of the run is damaged, otherwise 0.
    """
    found = findings() if run is None else check_run(run)
    for finding in found:
        mark, style = ("ok  ", "green") if finding.good else ("warn", "yellow")
        if finding.missing:
            mark, style = "-   ", "dim"
        console.print(f"[{style}]{mark}[/]  {finding.name:14} {escape(printable(finding.value))}", soft_wrap=True)
        if finding.advice:
            console.print(f"      {'':14} {printable(finding.advice)}", style="dim", markup=False, soft_wrap=True)
    if run is not None and not all(finding.good for finding in found):
        raise typer.Exit(1)


def check_run(run: Path) -> list[Finding]:
    """Compare every file of a run folder with its manifest."""
    from regard.run.finding import find_run

    folder = find_run(run)
    problems = folder.problems()
    if not problems:
        return [Finding("run", f"{folder} is intact, {counted(len(folder.checkpoints()), 'checkpoint')}", True)]
    advice = "training resumes from the newest intact checkpoint; a damaged recipe, corpus or tokenizer cannot be used"
    return [Finding("run", problem, False, advice if problem is problems[-1] else "") for problem in problems]


def findings() -> list[Finding]:
    """Return all findings about this machine."""
    from regard.loading import torch_installed

    with_torch = torch_installed()
    software = [Finding("Python", platform.python_version(), True), _torch() if with_torch else _no_torch()]
    hardware = _hardware() if with_torch else [Finding("CPU", _cpu(), True), _engine()]
    return [*software, *hardware, _data(), _disk(), *_extras()]


def _torch() -> Finding:
    import torch

    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11)
    return Finding(
        "PyTorch", torch.__version__, not old, "regard is tested with 2.11 and later: upgrade torch" if old else ""
    )


def _no_torch() -> Finding:
    advice = f"the engine translates without it; training and most other commands need it: {pip_install('torch')}"
    return Finding("PyTorch", "not installed", True, advice, missing=True)


def _cpu() -> str:
    return f"{platform.machine()}, {counted(os.cpu_count() or 1, 'core')}"


def _hardware() -> list[Finding]:
    import torch

    from regard.nn.device import cpu_has_bfloat16

    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    found = [
        Finding(
            "CPU",
            f"{_cpu()}, {counted(threads, 'thread')} used, bfloat16 {'yes' if cpu_has_bfloat16() else 'no'}",
            threads <= cores,
            "" if threads <= cores else "more threads than cores makes every operation slower: unset OMP_NUM_THREADS",
        )
    ]
    found.append(_engine())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = f"{properties.total_memory / 2**30:.0f} GiB"
            half = torch.cuda.is_bf16_supported(including_emulation=False)
            advice = "" if half else "no bfloat16 on this GPU: training runs in float16 with a loss scale"
            found.append(Finding(f"GPU {index}", f"{properties.name}, {memory}", half, advice))
        triton = importlib.util.find_spec("triton") is not None
        slower = f"the GPU kernels of regard need it; training is slower without them: {pip_install('triton')}"
        advice = "" if triton else slower
        found.append(Finding("Triton", "installed" if triton else "not installed", triton, advice))
    else:
        expected = torch.backends.cuda.is_built()
        advice = "PyTorch was built with CUDA but finds no GPU: check the driver" if expected else ""
        found.append(Finding("GPU", "none; the small recipes can be trained on a CPU", not expected, advice))
    return found


def _engine() -> Finding:
    from regard.engine.bindings import library, processor

    if library() is not None:
        return Finding("engine", f"compiled; uses {processor()}", True)
    advice = "PyTorch translates, more slowly, without it: install gcc or clang, and then regard again (make engine)"
    return Finding("engine", "not compiled", False, advice)


def _data() -> Finding:
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        return Finding(
            "data folder", "REGARD_DATA is not set", True, "set it, or use --data, for recipes that read files"
        )
    there = Path(folder).is_dir()
    return Finding(
        "data folder", folder, there, "" if there else "this is not a folder: set REGARD_DATA to an existing one"
    )


def _disk() -> Finding:
    free = shutil.disk_usage(Path()).free
    return Finding(
        "free disk",
        f"{free / 2**30:.1f} GiB here",
        free > 2**30,
        "" if free > 2**30 else "this may be too little for a run",
    )


def _extras() -> list[Finding]:
    found = []
    for name, extra in EXTRAS.items():
        missing = [
            package for package in extra.packages if importlib.util.find_spec(MODULES.get(package, package)) is None
        ]
        if missing:
            advice = f"needed for {extra.feature}: {install_command(name)}"
            found.append(Finding(f"extra {name}", f"not installed: {', '.join(missing)}", True, advice, missing=True))
        else:
            value = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in extra.packages)
            found.append(Finding(f"extra {name}", value, True))
    return found
