"""Schemathesis reads our OpenAPI description and tries what nobody thought of."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install schemathesis")


def test_nothing_that_fits_or_breaks_the_description_breaks_the_server(server, tmp_path):
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json"),
        *("--checks", "not_a_server_error,status_code_conformance,response_schema_conformance"),
        *("--max-examples", "15", "--workers", "1", "--request-timeout", "60", "--seed", "1"),
        *("--phases", "examples,coverage,fuzzing"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]
    assert server.post("/v1/translate", json={"text": "Ja."}).status_code == 200
