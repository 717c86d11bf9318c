"""A person configures an agent: rows, the prompt as they type, a version, and a message to it, beside the form."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from nova_workers.contracts.http.wire import AgentCreate, AgentPatch
from tests.browser.harness import UNFOLD, Site

_PATHS = ("", "/json", "/versions", "/compare?from=1&to=2", "/try", "/manage")


async def _made(nova: Site, agent_id: str) -> str:
    """Make an agent that answers, with two versions; return the address of its page."""
    script = [{"say": "I keep **minutes**."}]
    agent = AgentCreate(
        id=agent_id, name="Clerk", identity="You are the clerk.", engine="scripted", engine_config={"script": script}
    )
    await nova.fleet.agents.create(agent)
    await nova.fleet.agents.patch(agent_id, AgentPatch(description="Keeps minutes."))
    return f"{nova.url}/agents/{agent_id}"


async def test_an_agent_is_configured_and_tried_on_one_page(page: Page, nova: Site) -> None:
    await page.goto(await _made(nova, "clerk"))
    await page.evaluate("window.untouched = true")
    await page.locator("#section-prompt > summary").click()
    duties = page.get_by_role("group", name="Responsibilities")
    await duties.get_by_role("button", name="Add").click()
    title = duties.get_by_label(re.compile("^Title"))
    await expect(title).to_be_focused()
    await title.fill("Minutes")
    await duties.get_by_label(re.compile("^Content")).fill("Write down what was decided.")
    prompt = page.locator("#prompt")
    await expect(prompt.get_by_text("Write down what was decided.")).to_have_count(1)
    # A field says what is wrong once a person paused, and no more once it is right; nothing was saved for it.
    await page.locator("#section-limits > summary").click()
    turns = page.locator("[name=max_turns]")
    await turns.fill("many")
    wrong = page.locator("#f-max_turns-notes .error")
    await expect(wrong).to_be_visible()
    await turns.fill("")
    await expect(wrong).to_have_count(0)
    message = page.get_by_role("textbox", name="Message")
    await message.fill("What do you do?")
    await message.press("Control+Enter")
    answer = page.locator("#try .exchange")
    await expect(answer.get_by_text("What do you do?")).to_be_visible()
    await expect(answer.locator("strong")).to_have_text("minutes", timeout=60_000)
    await expect(answer.get_by_role("link", name="version 2")).to_be_visible()
    # All of that left the page and what was typed in its place.
    assert await page.evaluate("window.untouched") is True
    await page.locator("#section-prompt > summary").click()
    await expect(title).to_have_value("Minutes")
    await page.get_by_role("button", name="Save as a new version").click()
    await expect(page.get_by_text("Version 3 is saved")).to_be_visible()
    saved = await nova.fleet.agents.get("clerk")
    assert [duty.title for duty in saved.spec.responsibilities] == ["Minutes"]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
async def test_the_pages_of_an_agent_have_no_accessibility_faults(theme: str, page: Page, nova: Site) -> None:
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    address = await _made(nova, f"clerk-{theme}")
    faults: list[str] = []
    for path in _PATHS:
        await page.goto(f"{address}{path}")
        await page.evaluate(UNFOLD)
        found = await Axe().run(page, options={"resultTypes": ["violations"]})
        faults += [
            f"{path}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
            for one in found.response["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
    assert faults == []


async def test_the_pages_of_an_agent_fit_a_phone(page: Page, nova: Site) -> None:
    address = await _made(nova, "clerk-phone")
    await page.set_viewport_size({"width": 360, "height": 780})
    for path in _PATHS:
        await page.goto(f"{address}{path}")
        await page.evaluate(UNFOLD)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, path
