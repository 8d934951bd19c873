"""A browser for the tests of the explorer, where one is installed."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests; without one they are skipped."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(playwright),
            args=["--no-sandbox"],  # Chromium's sandbox needs rights that a container often lacks
        )
        yield browser
        browser.close()


def find_browser(playwright: Playwright) -> str:
    """The one that TINYGPT_BROWSER names, one on the PATH, or Playwright's own."""
    named = os.environ.get("TINYGPT_BROWSER")
    on_path = (shutil.which(name) for name in NAMES)
    found = named or next(filter(None, on_path), None) or playwright.chromium.executable_path
    if not os.path.exists(found):
        pytest.skip(
            f"no browser: TINYGPT_BROWSER is not set or wrong, {', '.join(NAMES)} are not on the PATH; "
            "install one: apt-get install chromium, or: python -m playwright install chromium"
        )
    return found
