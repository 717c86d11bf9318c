"""The console's pages of skills: the library, a skill, and adding by text, files or a folder."""

from __future__ import annotations

import base64

import httpx2

from tests.integration.api.manual_worker import Tenant
from tests.integration.console.conftest import Console

TEXT = """---
name: rhyme
description: Greets people in rhyme. Use it whenever you greet a person.
license: MIT
---
# Rhyming

Always greet **in rhyme**. <script>alert(1)</script>
"""
FOLDER = [
    ("folder", ("rhyme/SKILL.md", TEXT.encode())),
    ("folder", ("rhyme/words/list.txt", b"moon\nsoon\n")),
    ("folder", ("rhyme/scripts/check.py", b"#!/usr/bin/env python3\nprint(1)\n")),
    ("folder", ("rhyme/.git/config", b"hidden")),
]


async def stored(console: Console, name: str = "rhyme") -> dict[str, object]:
    return (await console.api.http.get(f"/v1/skills/{name}")).json()


async def add(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post("/skills/~new", data={"skill_md": ""}, files=FOLDER)
    assert (answer.status_code, answer.headers.get("location")) == (303, "/skills/rhyme"), answer.text


async def test_a_folder_becomes_a_skill_without_its_hidden_files(console: Console, browser: httpx2.AsyncClient) -> None:
    assert "nova skills add" in (await browser.get("/skills")).text
    await add(browser)
    files = (await stored(console))["files"]
    assert files == [
        {"path": "scripts/check.py", "size_bytes": 32, "executable": True},
        {"path": "words/list.txt", "size_bytes": 10, "executable": False},
    ]
    assert "Greets people in rhyme" in (await browser.get("/skills")).text


async def test_a_skill_is_shown_as_markdown_with_its_files_and_agents(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await add(browser)
    await console.api.http.patch("/v1/agents/nova", json={"skills": ["rhyme"]})
    page = (await browser.get("/skills/rhyme")).text
    assert "<strong>in rhyme</strong>" in page
    assert "<script>alert" not in page
    assert "words/list.txt" in page
    assert 'href="/agents/nova#section-skills"' in page
    shown = await browser.get("/skills/rhyme/file", params={"path": "words/list.txt"})
    assert "moon" in shown.text
    saved = await browser.get("/skills/rhyme/file", params={"path": "words/list.txt", "download": "yes"})
    assert saved.content == b"moon\nsoon\n"
    assert saved.headers["content-disposition"].startswith("attachment")
    assert (await browser.get("/skills/rhyme/file", params={"path": "missing"})).status_code == 404


async def test_an_edit_keeps_removes_and_adds_files(console: Console, browser: httpx2.AsyncClient) -> None:
    await add(browser)
    changed = TEXT.replace("in rhyme**", "in verse**")
    answer = await browser.post(
        "/skills/rhyme/edit",
        data={"skill_md": changed.replace("\n", "\r\n"), "drop": "words/list.txt"},
        files=[("files", ("logo.bin", b"\x00\xff"))],
    )
    assert answer.status_code == 303, answer.text
    after = await stored(console)
    assert after["skill_md"] == changed
    assert [file["path"] for file in after["files"]] == ["logo.bin", "scripts/check.py"]  # pyright: ignore[reportUnknownVariableType, reportGeneralTypeIssues]
    content = (await console.api.http.get("/v1/skills/rhyme/file", params={"path": "logo.bin"})).json()
    assert base64.b64decode(content["content_base64"]) == b"\x00\xff"
    # What is no text is sent to be saved.
    binary = await browser.get("/skills/rhyme/file", params={"path": "logo.bin"})
    assert binary.headers["content-type"] == "application/octet-stream"


async def test_what_is_wrong_with_a_skill_stands_in_its_form_and_the_text_is_kept(browser: httpx2.AsyncClient) -> None:
    for text, said in (
        ("Only text.", "has no name"),
        ("---\nname: rhyme\n---\nNo description, typed.", "description"),
        ("---\nname: Bad Name\ndescription: x\n---\n", "small letters"),
    ):
        page = await browser.post("/skills/~new", data={"skill_md": text})
        assert page.status_code == 422, said
        assert said in page.text
        assert text.rpartition("\n")[2] in page.text
    await add(browser)
    other = await browser.post("/skills/rhyme/edit", data={"skill_md": TEXT.replace("name: rhyme", "name: verse")})
    assert other.status_code == 422
    assert "Add it as a new skill instead" in other.text


async def test_a_skill_that_agents_have_is_not_deleted_and_they_are_named(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await add(browser)
    await console.api.http.patch("/v1/agents/nova", json={"skills": ["rhyme"]})
    assert (await browser.post("/skills/rhyme/delete")).headers["location"] == "/skills/rhyme"
    assert "is assigned to nova" in (await browser.get("/skills/rhyme")).text
    await console.api.http.patch("/v1/agents/nova", json={"skills": []})
    assert (await browser.post("/skills/rhyme/delete")).headers["location"] == "/skills"
    assert (await browser.get("/skills/rhyme")).status_code == 404


async def test_another_tenants_skill_is_not_found(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant
) -> None:
    await add(browser)
    async with console.signed_in(other_tenant.key) as other:
        for path in ("", "/edit", "/file?path=words/list.txt"):
            assert (await other.get(f"/skills/rhyme{path}")).status_code == 404
