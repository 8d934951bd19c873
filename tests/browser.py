"""A browser for the tests of the explorer, where one is installed."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


NO_BROWSER = (
    f"no browser: TINYGPT_BROWSER is not set or wrong, {', '.join(NAMES)} are not on the PATH; "
    "install one: apt-get install chromium, or: python -m playwright install chromium"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests; without one they are skipped."""
    with sync_playwright() as playwright:
        browser = start_browser(playwright)
        if not browser:
            pytest.skip(NO_BROWSER)
        yield browser
        browser.close()


def start_browser(playwright: Playwright) -> Browser | None:
    """The one that TINYGPT_BROWSER names, one on the PATH, or Playwright's own."""
    named = os.environ.get("TINYGPT_BROWSER")
    on_path = (shutil.which(name) for name in NAMES)
    path = named or next(filter(None, on_path), None) or playwright.chromium.executable_path
    if not os.path.exists(path):
        return None
    # Chromium's sandbox needs rights that a container often lacks.
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
