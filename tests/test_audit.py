"""Locked requirements: they are those of constraints.txt, and the audit fails on what an index knows to be vulnerable."""

import ast
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^([\w.-]+)==([^\s;+\\]+)", re.MULTILINE)


def normalized(text):
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in PIN.findall(text)}


def test_locked_versions_are_those_of_the_constraints_and_have_hashes():
    pinned = normalized((ROOT / "constraints.txt").read_text())
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert {path.stem for path in files} == {"core", "torch", "torch-cpu", "cuda", "dev", "deploy"}
    for path in files:
        text = path.read_text()
        assert normalized(text) <= pinned, path
        entries = re.split(r"\n(?=[\w.-]+==)", text)[1:]
        assert entries and all("--hash=sha256:" in entry for entry in entries), path


@pytest.mark.parametrize("extra", ["serve", "plots"])
def test_the_environment_of_the_demo_has_what_the_readme_uses_next(extra):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {name for name, _ in normalized((ROOT / "requirements" / "core.txt").read_text())}
    assert {re.split(r"[^\w-]", one)[0] for one in project["optional-dependencies"][extra]} <= core


def test_what_the_package_imports_is_declared():
    """At the top of a file or in a function: nothing is there only because another package needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {re.split(r"[^\w-]", one)[0] for one in declared}
    modules = {module for module, found in packages_distributions().items() if names & {one.lower() for one in found}}
    modules |= {"starlette", "pydantic"}  # parts of the interface of FastAPI
    modules |= {"regard", "triton", "ray", *sys.stdlib_module_names}  # two are not installed everywhere
    found = {}
    for path in (ROOT / "src" / "regard").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name.split(".")[0]: path for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found[node.module.split(".")[0]] = path
    assert {"markdown_it", "pygments", "torch"} <= found.keys()
    assert {module: path for module, path in found.items() if module not in modules} == {}


class Index(BaseHTTPRequestHandler):
    """An index that knows one vulnerable version; any path under /none is unknown to it."""

    def do_GET(self):
        known = self.path.startswith("/pypi/")
        one = {"id": "CVE-1", "fixed_in": ["2.0"], "summary": "bad", "withdrawn": None}
        old = one | {"id": "CVE-2", "withdrawn": "2020-01-01"}
        found = [one, old] if self.path == "/pypi/broken/1.0/json" else [old]
        content = json.dumps({"vulnerabilities": found}).encode()
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(content if known else b"")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def index():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def audit(tmp_path, url, *pins):
    (tmp_path / "pins.txt").write_text("".join(f"{pin} \\\n    --hash=sha256:0\n" for pin in pins))
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), str(tmp_path / "pins.txt")]
    environment = os.environ | {"PIP_INDEX_URL": url}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def test_a_known_vulnerability_fails_and_is_named(tmp_path, index):
    done = audit(tmp_path, f"{index}/simple", "good==1.0", "broken==1.0")
    assert done.returncode == 1, done.stderr
    assert "broken 1.0: CVE-1, fixed in 2.0: bad" in done.stdout and "CVE-2" not in done.stdout


def test_withdrawn_vulnerabilities_pass(tmp_path, index):
    done = audit(tmp_path, f"{index}/simple", "good==1.0", "broken==2.0")
    assert done.returncode == 0 and "2 versions, 0 known vulnerabilities" in done.stdout, done.stderr


@pytest.mark.parametrize("address", ["{}/none/simple", "http://127.0.0.1:9/simple"], ids=["no API", "no server"])
def test_an_index_without_answers_is_one_line_and_passes(tmp_path, index, address):
    done = audit(tmp_path, address.format(index), "broken==1.0")
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and "audit: not done" in done.stdout, done.stderr
