"""Imports point only back along the way of the data (docs/design.md): a file imports from lower layers or its own folder."""

import ast
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
LAYERS = {
    "errors": 0, "cores": 0, "messages": -1, "signals": -1, "process_end": -1, "registry": 0, "config": 0, "toml": 0.1,
    "recipe_files": 0.2, "kernels": 0.1, "storage": 0,
    "text": 1, "data": 2, "nn": 3, "models": 4, "run": 5, "training": 6, "decoding": 6, "preprocess": 6, "engine": 6.5,
    "explain": 7, "metrics": 7, "table1": 7, "progress": 8, "tasks": 8, "torch_loading": 8.4, "loading": 8.5, "looking": 8.9,
    "evaluating": 8.9, "api": 9, "comparing": 9.5, "adapting": 10, "aligning": 10, "calibrating": 10, "cluster": 10,
    "contrasting": 10, "distilling": 10, "probing": 10, "exchange": 10, "serve": 10, "study": 10, "learn": 10.5, "cli": 11,
    "__main__": 12,
}  # fmt: skip
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]
NAMES = {
    ".".join(("regard", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in FILES
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names] if module == "regard" else [module]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("regard.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_from_lower_layers_or_its_own_room(path):
    for other in imported_rooms(path) - {room(path), "errors"}:
        assert LAYERS[other] < LAYERS[room(path)], f"{room(path)} imports {other}"


def imported_files(path: Path) -> set[Path]:
    """The files that a file imports when it runs, at the top or in a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # A folder has files as names, and its `__init__.py` has others.
            found |= names if names <= NAMES.keys() else names | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {NAMES[name] for name in found & NAMES.keys()}


def test_no_files_import_each_other_in_a_circle():
    imports = {path: imported_files(path) for path in FILES}
    while True:
        # A file of a circle imports one, and is imported by one.
        imported = set().union(*imports.values())
        left = {path: others for path, others in imports.items() if others & imports.keys() and path in imported}
        if len(left) == len(imports):
            break
        imports = left
    assert not imports, sorted(str(path.relative_to(ROOT)) for path in imports)


def test_every_room_has_a_layer():
    assert {room(path) for path in FILES} == set(LAYERS)


def test_nothing_is_pickled_evaluated_or_run_by_a_shell():
    forbidden = ("pickle", "torch.load", "torch.save", "eval(", "exec(", "shell=True", "os.system")
    for path in FILES:
        text = path.read_text(encoding="utf-8").replace("model.eval()", "").replace(".eval()", "")
        assert not [word for word in forbidden if word in text], path
