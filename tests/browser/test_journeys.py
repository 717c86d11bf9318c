"""What people come for, from one end to the other: a first answer, an agent, a trigger, and a key that is revoked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, expect

from nova_workers.contracts.http.keys import KeyCreate
from tests.browser.harness import Site, new_context

_ANSWER_MS = 20_000


@asynccontextmanager
async def _person(nova: Site, chromium: Browser, name: str) -> AsyncGenerator[Page]:
    """Give the page of a person with a key of their own, who signs in at whatever page they open first."""
    key = (await nova.fleet.keys.create(KeyCreate(name=name, scopes=["runs", "agents", "workspace"]))).key
    context = await new_context(chromium, base_url=nova.url)
    page = await context.new_page()
    await page.goto("/chat")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(re.compile("/chat$"))
    # Its scripts, too: before them, Enter begins a line.
    await page.wait_for_load_state()
    yield page
    await context.close()


async def test_a_person_signs_in_and_gets_an_answer(nova: Site, chromium: Browser) -> None:
    async with _person(nova, chromium, "first steps") as page:
        await page.locator("select[name=agent_id]").select_option("support")
        await page.get_by_label("Message", exact=True).fill("Where is my second parcel?")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("/chat/thr_"))
        answer = page.get_by_text("Your parcel left the warehouse this morning")
        await expect(answer).to_be_visible(timeout=_ANSWER_MS)


async def test_a_session_ends_in_open_pages_when_its_key_is_revoked(page: Page, nova: Site, chromium: Browser) -> None:
    (writing,) = (await nova.fleet.runs.list(agent_id="writer", limit=1)).items
    async with _person(nova, chromium, "leaves today") as leaving:
        conversation = f"/chat/{writing.thread_id}"
        await leaving.goto(conversation)
        await expect(leaving.get_by_text("Write the newsletter").first).to_be_visible()
        await page.goto(f"{nova.url}/keys")
        row = page.get_by_role("row", name=re.compile("leaves today"))
        await row.get_by_role("button", name="Revoke").first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(row.get_by_text("revoked").first).to_be_visible()
        await expect(leaving).to_have_url(f"{nova.url}/login?next={conversation}")


async def test_an_agent_is_made_by_the_form_and_talked_to(page: Page, nova: Site) -> None:
    await page.goto(f"{nova.url}/agents")
    await page.get_by_role("link", name="New agent").first.click()
    await page.get_by_label(re.compile("^ID")).fill("florist")
    await page.locator("[name=name]").fill("Florist")
    await page.locator("[name=engine]").fill("scripted")
    await page.locator("#section-prompt > summary").click()
    await page.locator("[name=identity]").fill("You know every flower.")
    await page.locator("#section-model-settings > summary").click()
    await page.locator("[name^=engine_config]").fill(json.dumps({"script": [{"say": "Tulips, in **April**."}]}))
    await page.get_by_role("button", name="Make the agent").click()
    await expect(page.get_by_text("Agent florist is made.")).to_be_visible()
    await page.goto(f"{nova.url}/chat?agent=florist")
    await page.get_by_label("Message", exact=True).fill("What do I plant?")
    await page.keyboard.press("Enter")
    await expect(page.locator("#turns strong", has_text="April")).to_be_visible(timeout=_ANSWER_MS)


async def test_a_trigger_is_made_by_the_form_and_its_run_appears(page: Page, nova: Site) -> None:
    await page.goto(f"{nova.url}/triggers/new?agent=support")
    await expect(page.get_by_role("group", name="Days")).to_be_visible()
    await page.get_by_label("Fires").select_option("at")
    await expect(page.get_by_role("group", name="Days")).to_be_hidden()
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await page.get_by_label("At", exact=True).locator("visible=true").fill("2031-07-01T09:00")
    await expect(page.get_by_text("Tue 2031-07-01 09:00 UTC+02:00 = Tue 2031-07-01 07:00 UTC")).to_be_visible()
    await page.get_by_label("Prompt").fill("Greet the **night shift**.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The trigger was created.")).to_be_visible()
    await page.get_by_role("button", name="Fire now").click()
    firing = page.get_by_role("link", name=re.compile("^run_|Run$")).first
    await expect(firing).to_be_visible()
    await firing.click()
    await expect(page.get_by_text("Your parcel left the warehouse").first).to_be_visible(timeout=_ANSWER_MS)
