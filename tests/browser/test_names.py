"""Things are shown by their names, and codes as words, on every page of a filled fleet."""

from __future__ import annotations

import re

from playwright.async_api import Page

from nova_workers.console.pages import PAGES
from tests.browser.harness import Site
from tests.browser.things import states, things, trees
from tests.requirements import proves

_TEXTS = """() => {
  // Ids that are there to be copied or compared, data, code, commands, and what people typed.
  const exempt = ".id, code, pre, kbd, dialog, textarea, .prose, .said, [hidden]";
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const texts = [document.title];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.closest(exempt)) texts.push(node.nodeValue);
  }
  return texts;
}"""
_ID = re.compile(r"\b[a-z]{3,5}_[0-9A-HJKMNP-TV-Z]{26}\b")
_AGENT = re.compile(r"^\W*(analyst|importer|planner|release|support|writer)\W*$")
"""Ids of agents whose names are others, or have a capital."""
_CODE = re.compile(r"\b[a-z]+_[a-z_]+\b|\b[A-Z]{3,}_[A-Z_]+\b")
_MESSAGES = re.compile(r'^\s*(\{"script"|Work order trc_)')
"""Messages of this fleet: scripts for its engine, and those of the parts of work orders."""
_EXCEPTIONS = {
    # An order is known by the id that its customer has of it, and policies by theirs.
    "/work-orders": re.compile(r"^Order trc_|^(butler|launchbase)_"),
    # The audit log's fields are those of its file.
    "/audit": re.compile(r"^[a-z_., ]+$"),
    # Tools and workers have no other names.
    "/runs/": re.compile(r"^[a-z]+_[a-z]+$|^wkr_"),
}


def _wrong(path: str, text: str) -> bool:
    allowed = (pattern for place, pattern in _EXCEPTIONS.items() if path.startswith(place))
    if _MESSAGES.search(text) or any(pattern.search(text.strip()) for pattern in allowed):
        return False
    return bool(_ID.search(text) or _AGENT.search(text) or _CODE.search(text))


@proves("console.names")
async def test_things_have_their_names_and_codes_are_words(page: Page, nova: Site) -> None:
    paths = [entry.path for module in PAGES for entry in module.nav]
    faults: list[str] = []
    for path in (*paths, "/tasks/list", *await things(nova), *await trees(nova), *await states(nova)):
        await page.goto(f"{nova.url}{path}")
        texts: list[str] = await page.evaluate(_TEXTS)
        faults += [f"{path}: {text.strip()[:100]!r}" for text in texts if _wrong(path, text)]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)
