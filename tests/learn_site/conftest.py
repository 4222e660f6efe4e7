"""The site of `regard learn`, built once and served."""

import json
import threading
import warnings

import pytest

from regard.learn.serving import make_server
from regard.learn.site import build
from tests.browser import Watched
from tests.shared import make_once


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with the site, and what is known of it as JSON, made once for all processes."""

    def make(folder):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            site = build(folder / "site")
        known = {
            "warnings": [str(one.message) for one in found],
            "titles": [(page.url, page.titles) for chapter in site.chapters for page in chapter.pages],
            "public": [one.texts["en"] for one in site.pages["api/regard.html"].rendered.headings],
            "files": list(site.links.files),
        }
        (folder / "known.json").write_text(json.dumps(known), encoding="utf-8")

    return make_once(tmp_path_factory, "learn-site", make)


@pytest.fixture(scope="session")
def folder(made):
    """The folder of the site."""
    return made / "site"


@pytest.fixture(scope="session")
def known(made):
    """Warnings of building the site, titles of listed pages by their address, public names, files that are linked to."""
    return json.loads((made / "known.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def address(folder):
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
