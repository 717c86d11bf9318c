"""The library of skills over HTTP."""

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any

import httpx2
import pytest

from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.skills import MAX_FILE_BYTES, MAX_FILES, MAX_SKILL_BYTES, MAX_SKILL_MD_CHARS
from nova_workers.domain.skills.rules.service import require_skills, save_skill
from nova_workers.domain.skills.sql import MAX_SKILLS
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves
from tests.support.data.archive_rows import small_row
from tests.support.waiting import until

Json = dict[str, Any]

_WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
_GIVE = "UPDATE agents SET spec = spec || :given::jsonb WHERE id = 'clerk'"

SKILL_MD = """---
name: rhyme
description: Greets people in rhyme. Use it for greetings.
license: MIT
metadata:
  version: 1.10
allowed-tools: Read Bash(git:*)
---
# Rhyme

Always greet in rhyme.
"""


def text(name: str = "rhyme", **more: str) -> str:
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in {"description": "Does it.", **more}.items()]
    return "\n".join(["---", f"name: {name}", *lines, "---", "Do it."])


def file(path: str, content: bytes = b"x", *, executable: bool = False) -> Json:
    return {"path": path, "content_base64": b64encode(content).decode(), "executable": executable}


async def put(api: Api, name: str = "rhyme", skill_md: str | None = None, *files: Json) -> Json:
    answer = await api.http.put(f"/v1/skills/{name}", json={"skill_md": skill_md or text(name), "files": list(files)})
    assert answer.status_code == 200, answer.text
    return answer.json()


@proves("ceilings.scope", "ceilings.secrets")
async def test_a_skill_of_an_agent_is_written_with_the_scopes_that_its_rights_need(
    api: Api, database: Database
) -> None:
    limited = await make_tenant(database, ("workspace",), api.tenant.id)
    await put(api)
    agent = {"id": "clerk", "name": "clerk", "skills": ["rhyme"]}
    assert (await api.http.post("/v1/agents", json=agent)).status_code == 201
    async with api.client(limited.key) as client:
        for rights, needed in (
            ({}, None),
            ({"trust": "unrestricted"}, "trust"),
            ({"trust": "sandbox", "directories": ["/srv"]}, "trust"),
            ({"directories": [], "capabilities": {"secrets": {}}}, "secrets"),
        ):
            assert (await api.http.patch("/v1/agents/clerk", json={**rights, "name": "clerk"})).status_code == 200
            answer = await client.put("/v1/skills/rhyme", json={"skill_md": text("rhyme"), "files": []})
            assert answer.status_code == (200 if needed is None else 403), answer.text
            assert answer.json().get("context", {}).get("needed") == needed
        await put(api)


@proves("ceilings.scope", "skills.assigned")
async def test_a_skill_and_the_agents_that_have_it_do_not_change_at_the_same_time(api: Api, database: Database) -> None:
    limited = await make_tenant(database, ("workspace",), api.tenant.id)
    await put(api)
    agent = {"id": "clerk", "name": "clerk"}
    assert (await api.http.post("/v1/agents", json=agent)).status_code == 201
    # A skill that is being written is not given to an agent, nor more trust to one that has it.
    for change in ({"skills": ["rhyme"]}, {"trust": "unrestricted"}):
        async with database.transaction() as connection:
            await save_skill(connection, api.tenant.id, "rhyme", text(), ())
            changing = asyncio.create_task(api.http.patch("/v1/agents/clerk", json=change))
            await until(lambda: database.fetchval(_WAITS))
        assert (await changing).status_code == 200
    # One that is being given to an agent is not written without its rights, nor removed.
    async with api.client(limited.key) as client:
        for given, method, body, status in (
            ({"trust": "unrestricted"}, "PUT", {"skill_md": text(), "files": []}, 403),
            ({"skills": ["rhyme"]}, "DELETE", None, 409),
        ):
            before = {"trust": "controlled", "skills": [] if method == "DELETE" else ["rhyme"]}
            assert (await api.http.patch("/v1/agents/clerk", json=before)).status_code == 200
            async with database.transaction() as connection:
                await require_skills(connection, api.tenant.id, ["rhyme"])
                await connection.execute(_GIVE, given=given)
                asking = asyncio.create_task(client.request(method, "/v1/skills/rhyme", json=body))
                await until(lambda: database.fetchval(_WAITS))
            assert (await asking).status_code == status


@proves("ceilings.scope", "ceilings.secrets")
async def test_an_archive_writes_skills_of_an_agent_with_the_scopes_that_its_rights_need(
    api: Api, database: Database
) -> None:
    limited = await make_tenant(database, ("workspace", "agents", "runs"), api.tenant.id)
    await put(api)
    agent = {"id": "clerk", "name": "clerk", "skills": ["rhyme"]}
    assert (await api.http.post("/v1/agents", json=agent)).status_code == 201
    async with api.client(limited.key) as client:
        for at, (rights, needed) in enumerate(
            (
                ({"trust": "unrestricted"}, "trust"),
                ({"trust": "sandbox", "directories": ["/srv"]}, "trust"),
                ({"directories": [], "capabilities": {"secrets": {}}}, "secrets"),
                ({"capabilities": {}}, None),
            )
        ):
            assert (await api.http.patch("/v1/agents/clerk", json=rights)).status_code == 200
            added = small_row("skill_files", skill_name="rhyme", path=f"scripts/{at}.py")
            for merge in ("true", "false") if needed else ("true",):
                answer = await _import(client, added, merge=merge)
                assert answer.status_code == (200 if needed is None else 403), answer.text
                assert answer.json().get("context", {}).get("needed") == needed
            # Other skills, and an archive without any, need nothing of this.
            other = small_row("skills", name=f"other-{at}", skill_md=text(f"other-{at}"))
            assert (await _import(client, other)).status_code == 200
    assert await database.fetchval("SELECT array_agg(path) FROM skill_files") == ["scripts/3.py"]


async def _import(client: httpx2.AsyncClient, row: tuple[str, Json], *, merge: str = "false") -> httpx2.Response:
    lines = [("archive", {"format": 1, "next_task_id": 1}), row, ("end", {"open_runs": 0})]
    content = "\n".join(json.dumps({"table": table, "row": each}) for table, each in lines)
    headers = {"Content-Type": MEDIA_TYPE}
    return await client.post("/v1/import", params={"merge": merge}, content=content, headers=headers)


async def test_a_skill_of_an_agent_that_a_later_release_wrote_is_written(api: Api, database: Database) -> None:
    await put(api)
    agent = {"id": "clerk", "name": "clerk", "skills": ["rhyme"]}
    assert (await api.http.post("/v1/agents", json=agent)).status_code == 201
    add = """UPDATE agents SET spec = spec || jsonb_build_object('later', :value::jsonb) WHERE id = 'clerk'"""
    await database.execute(add, value=None)
    await put(api)
    await database.execute(add, value={"x": 1})
    refused = await api.http.put("/v1/skills/rhyme", json={"skill_md": text(), "files": []})
    assert (refused.status_code, refused.json()["code"]) == (503, "newer_value"), refused.text


async def test_a_skill_is_added_read_replaced_whole_and_removed(api: Api) -> None:
    made = await put(
        api, "rhyme", SKILL_MD, file("words/list.txt", b"bee, tea\n"), file("run.sh", b"#!", executable=True)
    )
    assert made["skill_md"] == SKILL_MD
    assert made["metadata"] == {"version": "1.10"}
    assert made["allowed_tools"] == ["Read", "Bash(git:*)"]
    assert made["files"] == [
        {"path": "run.sh", "size_bytes": 2, "executable": True},
        {"path": "words/list.txt", "size_bytes": 9, "executable": False},
    ]
    read = (await api.http.get("/v1/skills/rhyme/file", params={"path": "words/list.txt"})).json()
    assert b64decode(read["content_base64"]) == b"bee, tea\n"
    assert (await api.http.get("/v1/skills/rhyme")).json() == made
    again = await put(api, "rhyme", text("rhyme"), file("other.txt"))
    assert [each["path"] for each in again["files"]] == ["other.txt"]
    assert (again["license"], again["metadata"], again["created_at"]) == (None, {}, made["created_at"])
    assert (await api.http.delete("/v1/skills/rhyme")).status_code == 204
    assert (await api.http.get("/v1/skills/rhyme")).status_code == 404
    assert (await api.http.delete("/v1/skills/rhyme")).status_code == 404


async def test_skills_are_listed_by_name_page_by_page(api: Api) -> None:
    for name in ("c", "a", "b"):
        await put(api, name)
    first = (await api.http.get("/v1/skills", params={"limit": 2})).json()
    rest = (await api.http.get("/v1/skills", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [skill["name"] for skill in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next_cursor"] is None
    assert "skill_md" not in first["items"][0]


async def test_a_library_is_seen_by_its_tenant_only(api: Api, other_tenant: Tenant) -> None:
    await put(api, "rhyme", None, file("a.txt"))
    async with api.client(other_tenant.key) as stranger:
        assert (await stranger.get("/v1/skills")).json()["items"] == []
        for path in ("/v1/skills/rhyme", "/v1/skills/rhyme/file?path=a.txt"):
            assert (await stranger.get(path)).status_code == 404
        assert (await stranger.delete("/v1/skills/rhyme")).status_code == 404
        mine = {"id": "x", "name": "X", "skills": ["rhyme"]}
        assert (await stranger.post("/v1/agents", json=mine)).status_code == 422
    assert (await api.http.get("/v1/skills/rhyme/file", params={"path": "b.txt"})).json()["detail"] == (
        "Skill 'rhyme' has no file 'b.txt'; it has 'a.txt'."
    )


@pytest.mark.parametrize(
    ("skill_md", "field", "says"),
    [
        ("Just text", "skill_md", "begins with front matter"),
        ("---\nname: rhyme\n---\nBody", "skill_md.description", "no 'description'"),
        ("---\ndescription: d\n---\nBody", "skill_md.name", "no 'name'"),
        (text(name="Rhyme"), "skill_md.name", "got 'Rhyme'"),
        (text(name="a--b"), "skill_md.name", "got 'a--b'"),
        (text(name="a" * 65), "skill_md.name", "64"),
        (text(name="other"), "skill_md.name", "its directory is called 'rhyme'"),
        (text(description="d" * 1025), "skill_md.description", "1024"),
        (text(description="' '"), "skill_md.description", "at least 1"),
        (text(description="[a, b]"), "skill_md.description", "string"),
        (text(hooks="x"), "skill_md.hooks", "put what is yours under metadata"),
        (text(metadata="{a: [b]}"), "skill_md.metadata.a", "string"),
        (text(description="&a d", license="*a"), "skill_md", "aliases"),
        (text(license="{{{{{}}}}}"), "skill_md", "deeper"),
        (text(license='"\\0"'), "skill_md", "cannot be stored"),
        (text(license="[1"), "skill_md", "not plain YAML"),
        ("---\nname: rhyme\nname: b\ndescription: d\n---\nBody", "skill_md", "twice"),
        ("---\nname: rhyme\ndescription: d\n---\n \n", "skill_md", "no instructions"),
        ("---\nname: rhyme\ndescription: d\nlicense: " + "x" * 9_000 + "\n---\nBody", "skill_md", "at most 8000"),
        ("---\nname: rhyme\ndescription: d\n---\n" + "x" * MAX_SKILL_MD_CHARS, "skill_md", "100000"),
    ],
)
@proves("skills.form")
async def test_a_malformed_skill_md_is_refused_by_field(api: Api, skill_md: str, field: str, says: str) -> None:
    answer = await api.http.put("/v1/skills/rhyme", json={"skill_md": skill_md})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field, answer.text
    assert says in answer.text
    assert await api.count("skills") == 0


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ([file("../up.txt")], "files.0.path"),
        ([file("a/../../up.txt")], "files.0.path"),
        ([file("/etc/passwd")], "files.0.path"),
        ([file("a//b")], "files.0.path"),
        ([file("a/./b")], "files.0.path"),
        ([file("C:\\x")], "files.0.path"),
        ([file("a\\..\\b")], "files.0.path"),
        ([file(".claude/settings.json")], "files.0.path"),
        ([file("a\nb")], "files.0.path"),
        ([file("ü" * 150)], "files.0.path"),
        ([file("/".join("abcdefghijk"))], "files.0.path"),
        ([file("x" * 201)], "files.0.path"),
        ([file("skill.md")], "files.0.path"),
        ([file("a"), file("a")], "files.1.path"),
        ([file("a"), file("A")], "files.1.path"),
        ([file("a"), file("a/b")], "files.1.path"),
        ([file("a/b"), file("a")], "files.1.path"),
        ([file("a"), {"path": "b", "content_base64": "no base64"}], "files.1.content_base64"),
        ([{"path": "b"}], "files.0.content_base64"),
        ([{**file("a"), "symlink": "/etc"}], "files.0.symlink"),
        ([file(f"{at}.txt") for at in range(MAX_FILES + 1)], "files"),
        ([file("a", b"x" * (MAX_FILE_BYTES + 1))], "files.0"),
        ([file(str(at), b"x" * (MAX_SKILL_BYTES // 3 + 1)) for at in range(3)], "files"),
    ],
)
@proves("skills.form")
async def test_a_file_that_no_skill_may_have_is_refused_by_field(api: Api, files: list[Json], field: str) -> None:
    answer = await api.http.put("/v1/skills/rhyme", json={"skill_md": text(), "files": files})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field, answer.text
    assert await api.count("skills") == 0


async def test_a_replacement_that_is_refused_leaves_the_skill_as_it_was(api: Api) -> None:
    made = await put(api, "rhyme", SKILL_MD, file("a.txt"))
    refused = await api.http.put("/v1/skills/rhyme", json={"skill_md": text(), "files": [file("..")]})
    assert refused.status_code == 422
    assert (await api.http.get("/v1/skills/rhyme")).json() == made


@pytest.mark.parametrize("name", ["Rhyme", "a%00b", "a..b", "%2e%2e", "x" * 70])
async def test_a_name_that_no_skill_has_is_refused(api: Api, name: str) -> None:
    assert (await api.http.get(f"/v1/skills/{name}")).status_code == 404
    assert (await api.http.put(f"/v1/skills/{name}", json={"skill_md": text()})).status_code in (404, 422)


async def test_a_tenant_has_a_limit(api: Api, database: Database) -> None:
    await database.execute(
        "INSERT INTO skills (tenant_id, name, description, skill_md, body) "
        "SELECT :tenant_id, 's-' || n, 'd', 'x', 'x' FROM generate_series(1, :many::int) n",
        tenant_id=api.tenant.id,
        many=MAX_SKILLS,
    )
    answer = await api.http.put("/v1/skills/rhyme", json={"skill_md": text()})
    assert answer.status_code == 409
    await put(api, "s-7")


@proves("skills.assigned")
async def test_only_skills_of_the_library_are_assigned(api: Api) -> None:
    await put(api, "rhyme")
    spec: Json = {"name": "X", "skills": ["rhyme", "whistle"]}
    refused = await api.http.post("/v1/agents", json={"id": "x", **spec})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "skills.1"
    made = await api.http.post("/v1/agents", json={"id": "x", "name": "X", "skills": ["rhyme"]})
    assert made.status_code == 201
    replaced = await api.http.put("/v1/agents/x", json=spec)
    assert replaced.status_code == 422
    assert replaced.json()["errors"][0]["field"] == "skills.1"
    for skills in (["rhyme", "rhyme"], ["Not A Name"], [f"s-{at}" for at in range(51)], "rhyme"):
        assert (await api.http.put("/v1/agents/x", json={"name": "X", "skills": skills})).status_code == 422


@proves("skills.assigned")
async def test_a_skill_that_an_agent_has_is_not_removed(api: Api) -> None:
    await put(api, "rhyme")
    await api.http.post("/v1/agents", json={"id": "poet", "name": "Poet", "skills": ["rhyme"]})
    refused = await api.http.delete("/v1/skills/rhyme")
    assert refused.status_code == 409
    assert refused.json()["detail"] == "Skill 'rhyme' is assigned to poet; take it from them first."
    await api.http.put("/v1/agents/poet", json={"name": "Poet"})
    assert (await api.http.delete("/v1/skills/rhyme")).status_code == 204
