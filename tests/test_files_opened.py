"""Files of a run, a store or another folder of ours are opened by `regard.storage` alone, which trusts nothing in them."""

import ast
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
OPENING = {
    *("open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "memmap", "fromfile", "tofile"),
    *("load_file", "save_file", "safe_open", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "touch", "rename"),
    *("copyfile", "copy2", "copytree", "symlink_to", "iterdir", "glob", "rglob", "scandir", "listdir", "savefig"),
}
# What is opened elsewhere, and why it is no file of such a folder.
ALLOWED = {
    "cores.py": {"read_text": "files of Linux that tell the CPU quota"},
    "table1.py": {"savefig": "the picture that the user named"},
    "cli/terminal.py": {"open": "/dev/null", "fdopen": "the standard streams"},
    "cli/card.py": {"read_text": "what was just written"},
    "cli/bench.py": {"mkdir": "the folder of the file that the user named", "write_text": "that file"},
    "cli/compare.py": {"write_text": "the file that the user named"},
    "cli/study.py": {"write_text": "the file that the user named"},
    "cli/translated_lines.py": dict.fromkeys(
        ("open", "read_text", "write_text", "write_bytes", "unlink"), "the file that the user named, and its parts"
    ),
    "cli/look.py": {"write_text": "the file that the user named"},
    "cli/probe.py": dict.fromkeys(("mkdir", "write_text"), "the folder that the user named"),
    "cli/paths.py": {"open": "the file that the user named, if it is there already"},
    "cli/report.py": {"write_text": "the file that the user named"},
    "cluster/output.py": {
        "open": "text that the user named",
        "glob": "a pattern that the user named",
        "iterdir": "a folder of text that the user named",
    },
    "exchange/comparing.py": dict.fromkeys(("write_text", "read_text"), "a temporary folder of this call"),
    "exchange/engines.py": dict.fromkeys(("write_text", "read_text"), "a temporary folder of the call that started it"),
    "exchange/exporting.py": dict.fromkeys(
        ("mkdir", "rename", "rmdir", "rmtree", "iterdir"), "the folder that the user named, before it is filled"
    ),
    "exchange/held_out.py": {"read_text": "sentences in the package"},
    "exchange/to_huggingface.py": {"save_file": "a new folder of this call"},
    "exchange/onnx_translate.py": {"read_text": "the program of an export, which runs without regard"},
    "exchange/to_onnx.py": dict.fromkeys(
        ("rename", "read_bytes", "unlink"), "the package, and a new folder of this call"
    ),
    "exchange/to_web.py": dict.fromkeys(
        ("mkdir", "read_bytes", "read_text", "write_bytes", "rename", "unlink"),
        "the package, and the file that the user named",
    ),
    "engine/build.py": None,  # reads and writes the package while it is built
    "explain/page_assets.py": {"read_text": "a part of the page, in the package"},
    "explain/figures.py": {"savefig": "the picture that the user named"},
    "explain/head_figures.py": {"savefig": "the picture that the user named"},
    "explain/layer_figures.py": {"savefig": "the picture that the user named"},
    "explain/paper_figures.py": {"savefig": "the picture that the user named"},
    "study/result/figure.py": {"savefig": "a buffer in memory"},
    "cli/exercises.py": {"write_text": "the file that the user named"},
    "learn/exercise_files.py": dict.fromkeys(
        ("read_text", "mkdir", "write_text"), "a page of the package, and the folder that the user named"
    ),
    "learn/notebook.py": dict.fromkeys(("read_text", "glob"), "pages of the package"),
    "learn/live_model.py": dict.fromkeys(("read_text", "glob"), "parts of pages, in the package"),
    "learn/numbers.py": {"read_text": "names of numbers, in the package"},
    "learn/recipe_list.py": dict.fromkeys(("read_text", "glob"), "recipes of the package, and results"),
    "learn/reference.py": {"read_text": "sources of the package"},
    "learn/site.py": dict.fromkeys(
        ("read_text", "read_bytes", "glob", "iterdir", "mkdir", "write_bytes"),
        "text of the package, and the folder that the user named",
    ),
    "learn/sources.py": {"read_text": "text of the package or its repository"},
    "loading.py": {"glob": "/dev"},
    "recipe_files.py": {"glob": "recipes in the package"},
    "nn/device.py": {"read_text": "/proc"},
    "storage/memory.py": {"read_text": "/proc and /sys"},
    "run/finding.py": {"glob": "models in the package"},
    "serve/access.py": {"read_text": "the file of keys that the user named"},
    "serve/server.py": {"read_text": "a part of the page, in the package"},
    "serve/worker_process.py": {"read_text": "/proc"},
    "serve/worker.py": {"fdopen": "a pipe"},
    "study/running/workers.py": {"glob": "/dev"},
    "storage/directory.py": None,
    "storage/folder.py": None,
    "text/arriving_lines.py": {"open": "text that the user named"},
    "text/babi.py": {"iterdir": "a folder of text that the user named"},
    "text/compression.py": {"open": "text that the user named"},
    "text/images.py": {"open": "an image that the user or a data file named, or bytes"},
    "toml.py": {"read_bytes": "a recipe that the user named"},
}


def calls(path):
    """The names of functions and methods that open files. Those of `Folder` are called otherwise, so that they differ."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in OPENING:
            yield function.id, node.lineno
        elif isinstance(function, ast.Attribute) and function.attr in OPENING:
            yield function.attr, node.lineno


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_opened_by_the_storage_module_or_are_known_not_to_be_of_a_folder(path):
    allowed = ALLOWED.get(path.relative_to(ROOT).as_posix(), {})
    if allowed is None:
        return
    found = {name: line for name, line in calls(path) if name not in allowed}
    assert not found, f"{path.name} opens files itself: {found}; use regard.storage, or say here why not"
