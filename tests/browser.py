"""A real browser for tests: Chromium, driven by Playwright. Tests skip, and say why, where either is missing."""

import shutil
from contextlib import contextmanager

import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Features of Chromium. The list of its address bar is a page that every window loads, and a spare process waits for the next
# page: two thirds of the CPU time of a small page. This list replaces Playwright's, whose entries follow.
SWITCHED_OFF = (
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess,"
    "AvoidCorsURLLoaderRestartOnRedirect,AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,"
    "HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,"
    "PaintHolding,PreconnectToSearch,ThirdPartyStoragePartitioning"
)
WAITS = 30_000  # milliseconds: a busy machine is not a wrong answer


@contextmanager
def chromium():
    """A browser, for as long as the context lasts."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    playwright.expect.set_options(timeout=WAITS)
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox", f"--disable-features={SWITCHED_OFF}"]  # we load nobody else's pages
        browser = started.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


def expect(locator):
    """Playwright's, which waits for what is expected."""
    from playwright.sync_api import expect

    return expect(locator)


class Watched:
    """A page, and all that it complained about or asked for."""

    def __init__(self, browser, **options):
        self.complaints, self.requests = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAITS)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))


# Rules are not run if what they find is of less impact. Details of what is right would be most of the answer.
FINDINGS = """async (only) => {
  const isSerious = (impact) => ["serious", "critical"].includes(impact);
  const impacts = (rule) => rule.impact ? [rule.impact]
    : [...rule.any, ...rule.all, ...rule.none].map((check) => axe._audit.data.checks[check.id ?? check].impact);
  const others = axe._audit.rules.filter((rule) => !impacts(rule).some(isSerious));
  const rules = Object.fromEntries(others.map((rule) => [rule.id, { enabled: false }]));
  const { violations } = await axe.run({ resultTypes: ["violations"], ...(only ? { runOnly: only } : { rules }) });
  return violations.filter((one) => isSerious(one.impact)).map((one) => [one.id, one.nodes[0].html]);
}"""


def serious_findings(page, only=None):
    """What axe-core finds that keeps people out: all of it, or what some rules find."""
    axe = pytest.importorskip(
        "axe_core_python.sync_playwright", reason="axe-core is not installed: pip install axe-core-python"
    )
    page.evaluate(axe.Axe().axe_script)
    return page.evaluate(FINDINGS, only)
