"""The head that the pages of look, report, compare and study have in common."""

import re

import pytest

from regard.explain.page_assets import ASSETS, make_page

BODIES = ["look.html", "report.html", "compare.html", "study.html"]


@pytest.mark.parametrize("name", BODIES)
def test_a_template_is_a_body_without_a_head_of_its_own(name):
    text = (ASSETS / name).read_text(encoding="utf-8")
    assert text.startswith("<body>") and text.endswith("</body>\n</html>\n")


def test_a_page_runs_scripts_and_reloads_only_if_it_says_so():
    plain = make_page("study.html", {"body": "<p>$5</p>"}, title="a < b", styles=["study.css"])
    assert "script-src" not in plain and "refresh" not in plain
    assert "default-src 'none'" in plain and "<title>a &lt; b</title>" in plain and "<p>$5</p>" in plain
    more = make_page("study.html", {"body": ""}, title="", styles=[], scripts=True, refresh_seconds=10)
    assert "script-src 'unsafe-inline'" in more
    assert re.findall(r'<meta http-equiv="refresh" content="(\d+)">', more) == ["10"]
    assert more.count("<head>") == more.count("<body>") == 1
