"""The READMEs quote the committed run, and name what exists."""

import re

import pytest

from tests.conftest import ROOT
from tinygpt.files import read_json

READMES = ("README.md", "README.zh-CN.md")


@pytest.mark.parametrize("name", READMES)
def test_the_quoted_figures_are_those_of_the_committed_run(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    test = read_json(ROOT / "reports" / "metrics.json")["test"]
    for part in ("model", "baseline"):
        assert f"{test[part]['nats_per_token']:.4f}" in text
        assert f"{test[part]['bits_per_char']:.3f}" in text
    sample = read_json(ROOT / "reports" / "samples.json")["samples"][0]
    assert sample["after"]["text"].replace("\n", "<br>\n> ") in text
    total = re.search(r"\*\*total\*\* .*\*\*([\d,]+)\*\*", (ROOT / "reports" / "report.md").read_text(encoding="utf-8"))
    assert total[1] in text


@pytest.mark.parametrize("name", READMES)
def test_every_module_and_every_link_exists(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)h][^)]*)\)", text):
        assert (ROOT / link.partition("#")[0]).exists(), link
    for module in (ROOT / "tinygpt").glob("*.py"):
        if module.stem != "__init__":
            assert module.name in text, f"{module.name} is missing from the tree in {name}"
