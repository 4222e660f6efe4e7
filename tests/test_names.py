"""One name, one class: a class name is defined once in the package."""

import ast
from collections import defaultdict
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent


def test_no_class_name_is_defined_twice():
    files = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(path.relative_to(ROOT)))
    assert len(files) > 100, "the package was not read"
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
