"""A person uploads a skill as a folder, and sees what became of it."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.harness import Site

_SKILL_MD = """---
name: rhyme
description: Greets people in rhyme.
---
# Rhyming

Always greet **in rhyme**.
"""


async def test_a_folder_is_uploaded_with_its_directories(page: Page, nova: Site, tmp_path: Path) -> None:
    folder = tmp_path / "rhyme"
    (folder / "words").mkdir(parents=True)
    (folder / "SKILL.md").write_text(_SKILL_MD)
    (folder / "words" / "list.txt").write_text("moon\nsoon\n")
    (folder / ".hidden").write_text("hidden")
    await page.goto(f"{nova.url}/skills/~new")
    await page.get_by_label("Folder").set_input_files(folder)
    await page.get_by_role("button", name="Add the skill").click()
    await expect(page.get_by_text("Skill rhyme is saved.")).to_be_visible()
    await expect(page.get_by_role("heading", name="Rhyming")).to_be_visible()
    await page.get_by_role("link", name="words/list.txt").click()
    await expect(page.get_by_text("moon")).to_be_visible()
    skill = await nova.fleet.skills.get("rhyme")
    assert [file.path for file in skill.files] == ["words/list.txt"]
    await nova.fleet.skills.delete("rhyme")
