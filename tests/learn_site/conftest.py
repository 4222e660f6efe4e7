"""The site of `regard learn`, built once and served."""

import threading
import warnings

import pytest

from regard.learn.serving import make_server
from regard.learn.site import build
from tests.browser import Watched


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="session")
def built(folder):
    """The site, and the warnings of building it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        return build(folder), [str(one.message) for one in found]


@pytest.fixture(scope="session")
def site(built):
    return built[0]


@pytest.fixture(scope="session")
def address(site, folder):
    with make_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def opened(browser, address):
    """Pages of the site. Afterwards none has complained or asked for anything outside."""
    made = []

    def opener(url, **options):
        watched = Watched(browser, **options)
        made.append(watched)
        watched.page.goto(f"{address}/{url}")
        return watched

    yield opener
    for watched in made:
        assert_nothing_is_wrong(watched, address)
        watched.context.close()


def assert_nothing_is_wrong(watched, address):
    assert watched.complaints == []
    assert [one for one in watched.requests if not one.startswith((f"{address}/", "data:", "blob:"))] == []
