"""API keys, host names and cross-site requests."""

import asyncio
import subprocess
import sys

import httpx
import pytest

from regard.errors import ConfigError
from regard.serve.access import Access, Limits, allowed_hosts, client_address, read_keys
from regard.serve.scheduler import Scheduler
from regard.serve.server import make_app
from regard.serve.service import Service
from tests.serve.fake_worker import InProcessWorker


def test_keys_come_from_options_a_file_and_the_environment(tmp_path):
    path = tmp_path / "keys"
    path.write_text("two\n\n three \n")
    assert read_keys(["one"], path, {"REGARD_API_KEYS": "four, five,"}) == ["one", "two", "three", "four", "five"]
    assert read_keys([], None, {}) == []


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_an_empty_key_is_refused_from_every_source(tmp_path, blank):
    path = tmp_path / "keys"
    path.write_text(blank)
    for given, file, environment in (
        ([blank], None, {}),
        (["good", blank], None, {}),
        ([], path, {}),
        ([], None, {"REGARD_API_KEYS": blank + ","}),
    ):
        with pytest.raises(ConfigError):
            read_keys(given, file, environment)


def test_a_missing_key_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys([], tmp_path / "nowhere", {})


@pytest.mark.slow
def test_the_command_refuses_an_empty_key_in_one_sentence():
    command = [sys.executable, "-m", "regard", "serve", "de-en", "--port", "0", "--api-key", ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "--api-key is empty" in done.stderr and "Traceback" not in done.stderr


def refusal(access, method="POST", **headers):
    return access.refusal(method, {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"origin": "http://localhost:8080"}, False),
        ({"origin": "https://LOCALHOST:8080"}, False),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "http://localhost:9999"}, True),
        ({"origin": "null"}, True),
        ({"sec_fetch_site": "same-origin"}, False),
        ({"sec_fetch_site": "none"}, False),
        ({"sec_fetch_site": "same-site"}, True),
        ({"sec_fetch_site": "cross-site"}, True),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost:8080"}, True),
    ],
)
def test_cross_site_posts_are_refused(headers, refused):
    assert bool(refusal(Access(), host="localhost:8080", **headers)) == refused
    assert refusal(Access(), method="GET", host="localhost:8080", **headers) is None


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST", "localhost."]
)
def test_loopback_allows_its_own_names(host):
    assert refusal(Access(hosts=allowed_hosts([], "127.0.0.1")), method="GET", host=host) is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "x:80", "[::2]"])
def test_loopback_allows_no_other_name(host):
    access = Access(hosts=allowed_hosts([], "127.0.0.1"))
    assert "--allow-host" in refusal(access, method="GET", host=host)
    assert refusal(Access(hosts=allowed_hosts([], "0.0.0.0")), method="GET", host=host) is None


def test_host_names_can_be_allowed():
    access = Access(hosts=allowed_hosts(["Translate.example.org"], "0.0.0.0"))
    assert refusal(access, host="translate.example.org:443") is None
    assert refusal(access, host="localhost") is None
    assert refusal(access, host="evil.example")


def test_a_client_is_an_ipv4_address_or_an_ipv6_network():
    assert client_address("192.0.2.7") == "192.0.2.7" == client_address("::ffff:192.0.2.7")
    assert client_address("2001:db8::1") == client_address("2001:db8::ffff:1") != client_address("2001:db8:0:1::1")
    assert client_address("testclient") == "testclient"


@pytest.mark.slow
def test_a_server_with_keys_requires_one(locked):
    server = locked
    asked, form = {"text": "Ja."}, {"q": "Ja.", "source": "de", "target": "en"}
    with open(f"/proc/{server.process.pid}/cmdline") as file:
        assert "secret" not in file.read()
    for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}):
        assert server.post("/v1/translate", json=asked, headers=wrong).status_code == 401
        for route in ("/metrics", "/v1/models"):
            assert server.get(route, headers=wrong).status_code == 401
    for key in ("secret", "other", "third"):
        headers = {"Authorization": f"Bearer {key}"}
        assert server.post("/v1/translate", json=asked, headers=headers).status_code == 200
        for route in ("/metrics", "/v1/models"):
            assert server.get(route, headers=headers).status_code == 200
    assert server.post("/translate", data=form).status_code == 401
    assert server.post("/translate", data={**form, "api_key": "secret"}).status_code == 200
    for route in ("/health", "/ready", "/", "/assets/page.js", "/languages"):
        assert server.get(route).status_code == 200
    cross = {"Origin": "http://evil.example", "Authorization": "Bearer secret"}
    assert server.post("/v1/translate", json=asked, headers=cross).status_code == 403
    refused = server.get("/v1/models", headers={"Host": "evil.example", "Authorization": "Bearer secret"})
    assert refused.status_code == 403 and "--allow-host" in refused.json()["error"]
    assert server.get("/health", headers={"Host": "10.0.0.7"}).status_code == 200


@pytest.mark.parametrize("public", [True, False])
def test_public_metrics_need_no_key_and_models_still_do(public):
    async def statuses():
        scheduler = Scheduler(InProcessWorker, workers=1, models={}, limits=Limits())
        app = make_app(Service({}, scheduler, Limits(), Access(keys=["secret"], public_metrics=public)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            found = [(await client.get(path)).status_code for path in ("/metrics", "/v1/models")]
        scheduler.close()
        return found

    assert asyncio.run(statuses()) == [200 if public else 401, 401]
