"""How fast the explorer is in a headless Chromium: the first view, and writing in characters a second.

python -m benchmarks.explorer reports/explorer.html
"""

from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from playwright.sync_api import Page, sync_playwright
from tabulate import tabulate

from tests.browser import NO_BROWSER, start_browser

READY = "page !== null && page.panels.every((panel) => panel.built)"
WRITE = """([prompt, seed, max_new_chars]) => {
    const file = page.file;
    const writer = new Writer(file.trained, file, { ...file.params.sample, prompt, seed, max_new_chars });
    const start = performance.now();
    while (!writer.done) writer.next();
    return [writer.ids.length - writer.nPrompt, (performance.now() - start) / 1000];
}"""


def main(
    page_path: Annotated[Path, typer.Argument(help="Made by the stage explore.")] = Path("reports/explorer.html"),
    rounds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Print a Markdown table: the medians over fresh pages."""
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = start_browser(playwright)
        if not browser:
            raise SystemExit(NO_BROWSER)
        for _ in range(rounds):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(page_path.resolve().as_uri())
            page.wait_for_function(READY)
            for name, value in measure(page).items():
                found.setdefault(name, []).append(value)
            page.close()
        browser.close()
    size = f"{page_path.stat().st_size / 1e6:.1f} MB"
    rows = [("size", size), *((name, f"{median(values):,.2f}") for name, values in found.items())]
    print(tabulate(rows, ["", "median"], tablefmt="github", disable_numparse=True, colalign=["left", "right"]))


def measure(page: Page) -> dict[str, float]:
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    sample = page.evaluate("page.file.params.sample")
    S = page.evaluate("page.file.params.model.context_size")
    prompts = list(enumerate(sample["prompts"], sample["seed"]))
    return {
        "first view, seconds": paint / 1000,
        "characters/s, the prompts of `sample`": speed(page, prompts, sample["max_new_chars"]),
        "characters/s within the context": speed(page, [(seed, prompt[:4]) for seed, prompt in prompts], S // 2),
        "characters/s beyond it": speed(page, [(seed, prompt * S) for seed, prompt in prompts], S // 2),
    }


def speed(page: Page, prompts: list[tuple[int, str]], max_new_chars: int) -> float:
    """All prompts together, one after the other."""
    written = [page.evaluate(WRITE, [prompt, seed, max_new_chars]) for seed, prompt in prompts]
    return sum(n for n, _ in written) / sum(seconds for _, seconds in written)


if __name__ == "__main__":
    typer.run(main)
