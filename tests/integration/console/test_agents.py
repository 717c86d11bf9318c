"""The console's pages of agents, before a real API: the form, conflicts, versions, renaming and deleting."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import httpx2
import orjson
import pytest
from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.events import Token, ToolStatus
from nova_workers.contracts.steps import ToolServerAway
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.api.runs.event_streams import begun
from tests.integration.console.conftest import Console
from tests.support.browser_forms import fields_of

FULL: dict[str, Any] = {
    "id": "clerk",
    "name": "Clerk <b>",
    "description": "Keeps the team's notes.",
    "identity": "You are the clerk.\n\nYou write & keep minutes.",
    "instructions": "\nBegins with a blank line, and ends with one.\n",
    "responsibilities": [
        {"title": "Minutes", "content": "What was decided."},
        {"title": "Archive", "content": ""},
    ],
    "directories": ["/srv/notes", "/srv/with blank"],
    "capabilities": {
        "memory": {"tools": ["memory_list"]},
        "self": {},
        "notes": {"tools": []},
        "secrets": {"config": {"names": ["GITHUB_*"]}},
        "mcp": {
            "config": {
                "servers": {
                    "github": {
                        "type": "http",
                        "url": "https://api.example.com/mcp",
                        "headers": {"Authorization": "Bearer ${secret:GITHUB_TOKEN}"},
                        "tools": ["search_issues"],
                    }
                }
            }
        },
    },
    "trust": "controlled",
    "native_tools": ["Read", "Grep"],
    "permissions": {
        "approvals": [
            {"tool": "mcp__*", "pattern": '*"draft": true*', "decision": "always"},
            {"tool": "note_delete", "pattern": None, "decision": "never"},
        ],
        "deny_commands": ["git push --force*"],
        "unlisted_commands": "ask",
    },
    "model": "sonnet",
    "engine": "scripted",
    "engine_config": {"script": [{"say": "ünï"}]},
    "max_turns": 12,
    "subagents": {"reader": {"description": "Reads.", "prompt": "Read.", "tools": None, "max_turns": 3}},
    "temperature": 0.5,
    "cost_budget_usd": 1.25,
    "output_schema": {"type": "object"},
    "retention": {"after_days": 30, "keep": "latest"},
}


async def made(console: Console, **changes: object) -> dict[str, Any]:
    """Make an agent by the API."""
    answer = await console.api.http.post("/v1/agents", json={**FULL, **changes})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def stored(console: Console, agent: str = "clerk") -> dict[str, Any]:
    return (await console.api.http.get(f"/v1/agents/{agent}")).json()


async def form_of(browser: httpx2.AsyncClient, path: str = "/agents/clerk") -> dict[str, list[str]]:
    page = await browser.get(path)
    assert page.status_code == 200, page.text
    return fields_of(page.text, "agent-form")


async def test_the_list_shows_the_tenants_agents(browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/agents")).text
    assert 'href="/agents/nova"' in page
    assert 'href="/agents/agent-builder"' in page
    assert "New agent" in page


async def test_the_form_has_every_field_of_the_configuration_with_what_the_api_says(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await made(console)
    page = (await browser.get("/agents/clerk")).text
    document = (await console.api.http.get("/openapi.json")).json()
    fields = document["components"]["schemas"]["AgentReplace"]["properties"]
    assert [field for field in fields if f'id="f-{field}"' not in page and f'id="f-{field}-set"' not in page] == []
    assert "Limit of concurrent runs of this agent on all workers together." in page
    assert "1,024 to 1,000,000." in page
    assert "Clerk &lt;b&gt;" in page


async def test_the_page_says_which_tool_server_is_away_and_why(
    console: Console, browser: httpx2.AsyncClient, redis: Redis
) -> None:
    await made(console)
    assert "did not answer" not in (await browser.get("/agents/clerk")).text
    away = ToolServerAway("mcp__github", "it did not answer within 10 s", ("<b>", "no route"))
    await AwayServers(redis).note(console.api.tenant.id, "clerk", (away,), datetime.now(UTC))
    page = (await browser.get("/agents/clerk")).text
    assert "mcp__github</code> did not answer" in page
    assert "it did not answer within 10 s" in page
    assert "&lt;b&gt;\nno route" in page


async def test_a_form_that_is_sent_unchanged_changes_nothing(console: Console, browser: httpx2.AsyncClient) -> None:
    before = await made(console)
    answer = await browser.post("/agents/clerk", data=await form_of(browser))
    assert answer.status_code == 303, answer.text
    assert "Nothing was changed" in (await browser.get("/agents/clerk")).text
    after = await stored(console)
    assert (after["version"], after["spec"]) == (1, before["spec"])


async def test_the_form_saves_a_version_with_what_was_typed(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    form = await form_of(browser)
    form["instructions"] = ["Use tools.\r\nBe brief."]
    form["max_turns"] = [""]
    del form["retention@on"]
    form["capabilities.memory.tools"] = ["memory_list", "memory_save"]
    del form["capabilities.notes@on"]
    form["permissions.deny_commands"] = ["rm *\r\n\r\ngit push --force*"]
    answer = await browser.post("/agents/clerk", data=form)
    assert answer.status_code == 303, answer.text
    assert "Version 2 is saved" in (await browser.get("/agents/clerk")).text
    spec = (await stored(console))["spec"]
    assert spec["instructions"] == "Use tools.\nBe brief."
    assert spec["max_turns"] is None
    assert spec["retention"] is None
    assert spec["capabilities"]["memory"]["tools"] == ["memory_list", "memory_save"]
    assert "notes" not in spec["capabilities"]
    assert spec["permissions"]["deny_commands"] == ["rm *", "git push --force*"]
    assert spec["subagents"] == {"reader": FULL["subagents"]["reader"] | {"model": None}}


async def test_rows_are_added_removed_and_moved_without_saving(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)

    async def press(form: dict[str, list[str]], button: str) -> dict[str, list[str]]:
        page = await browser.post("/agents/clerk", data={**form, "do": button})
        assert page.status_code == 200, page.text
        return fields_of(page.text, "agent-form")

    form = await form_of(browser)
    form["responsibilities.1.content"] = ["typed, not saved"]
    form = await press(form, "up:responsibilities.1")
    assert (form["responsibilities.0.title"], form["responsibilities.0.content"]) == (["Archive"], ["typed, not saved"])
    form = await press(form, "remove:responsibilities.1")
    assert form["responsibilities@row"] == ["0"]
    form = await press(form, "add:subagents")
    assert form["subagents.1.max_turns"] == ["20"]
    form |= {"subagents.1@key": ["writer"], "subagents.1.description": ["Writes."], "subagents.1.prompt": ["Write."]}
    form = await press(form, "add:capabilities.mcp.config.servers.0.http.headers")
    assert (await stored(console))["version"] == 1
    form |= {"capabilities.mcp.config.servers.0.http.headers.1@key": ["X-Team"]}
    form |= {"capabilities.mcp.config.servers.0.http.headers.1": ["blue"]}
    answer = await browser.post("/agents/clerk", data=form)
    assert answer.status_code == 303, answer.text
    spec = (await stored(console))["spec"]
    assert spec["responsibilities"] == [{"title": "Archive", "content": "typed, not saved"}]
    assert list(spec["subagents"]) == ["reader", "writer"]
    headers = spec["capabilities"]["mcp"]["config"]["servers"]["github"]["headers"]
    assert headers == {"Authorization": "Bearer ${secret:GITHUB_TOKEN}", "X-Team": "blue"}


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("max_turns", "many", "valid integer"),
        ("name", "", "at least 1 character"),
        ("temperature", "1.5", "less than or equal to 1"),
        ("directories", "relative", "is not absolute"),
        ("output_schema", "{", "This is not JSON"),
        ("responsibilities.1.title", "minutes", "is the title of responsibilities.0 too"),
        ("subagents.0@key", "", "One has no name"),
        ("engine", "steam", "there is no engine"),
        ("capabilities.mcp.config.servers.0.http.url", "ftp://example.com", "not the form that it needs; got"),
    ],
)
async def test_a_refusal_stands_at_its_field_and_keeps_what_was_typed(
    field: str, typed: str, said: str, console: Console, browser: httpx2.AsyncClient
) -> None:
    await made(console)
    form = await form_of(browser)
    form |= {field: [typed], "description": ["also typed"]}
    page = await browser.post("/agents/clerk", data=form)
    assert page.status_code == 422, page.text
    before, _, after = page.text.partition('<span class="error">')
    assert said in after.partition("</span>")[0]
    name = f'name="{field}"'
    assert name in before.rpartition('class="field')[2] or name in after[:3_000] or "servers" in field
    again = fields_of(page.text, "agent-form")
    assert again[field] == [typed]
    assert again["description"] == ["also typed"]
    assert (await stored(console))["version"] == 1


async def test_a_conflict_shows_both_changes_and_keeps_both_when_it_is_saved_again(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await made(console)
    form = await form_of(browser)
    form["description"] = ["Mine."]
    form["max_turns"] = ["7"]
    await console.api.http.patch("/v1/agents/clerk", json={"model": "opus", "max_turns": 9})
    page = await browser.post("/agents/clerk", data=form)
    assert page.status_code == 409
    assert "Changed meanwhile by a person" in page.text
    theirs, _, yours = page.text.partition("What yours would change in theirs")
    assert "opus" in theirs
    assert "Mine." in yours
    assert (await stored(console))["spec"]["description"] == FULL["description"]
    again = fields_of(page.text, "agent-form")
    assert again["description"] == ["Mine."]
    assert (await browser.post("/agents/clerk", data=again)).status_code == 303
    after = await stored(console)
    spec = after["spec"]
    assert (after["version"], spec["description"], spec["model"], spec["max_turns"]) == (3, "Mine.", "opus", 7)


async def test_an_agent_is_made_by_the_form_also_as_a_copy(console: Console, browser: httpx2.AsyncClient) -> None:
    form = await form_of(browser, "/agents/~new")
    form |= {"@id": ["Bad Id"], "name": ["Helper"]}
    refused = await browser.post("/agents/~new", data=form)
    assert refused.status_code == 422
    assert "use small letters, digits and hyphens" in refused.text
    form["@id"] = ["helper"]
    answer = await browser.post("/agents/~new", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/agents/helper")
    assert (await browser.post("/agents/~new", data=form)).status_code == 422
    await made(console)
    copy = await form_of(browser, "/agents/~new?from=clerk")
    copy["@id"] = ["copy"]
    assert (await browser.post("/agents/~new", data=copy)).status_code == 303
    assert (await stored(console, "copy"))["spec"] == (await stored(console))["spec"]


async def test_the_prompt_of_the_form_as_it_stands_is_shown_beside_it(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await made(console)

    def prompt(page: str) -> str:
        return page.partition('id="prompt"')[2].partition("</section>")[0]

    saved = prompt((await browser.get("/agents/clerk")).text)
    assert "You write &amp; keep minutes." in saved
    assert "memory_list" in saved
    form = await form_of(browser)
    form |= {"identity": ["You are <new>."], "do": ["prompt"]}
    page = await browser.post("/agents/clerk", data=form)
    assert page.status_code == 200
    assert "You are &lt;new&gt;." in prompt(page.text)
    assert fields_of(page.text, "agent-form")["identity"] == ["You are <new>."]
    assert (await stored(console))["version"] == 1
    broken = await browser.post("/agents/clerk", data=form | {"max_turns": ["many"]})
    assert "once the form can be saved" in prompt(broken.text)
    assert 'class="error"' in broken.text.partition('id="f-max_turns-notes"')[2][:200]
    # What only a save would refuse is shown as well, and what is permitted and unlikely to work.
    refused = await browser.post("/agents/clerk", data=form | {"engine": ["steam"], "trust": ["sandbox"]})
    assert "there is no engine &#39;steam&#39;" in refused.text
    doubtful = await browser.post("/agents/clerk", data=form | {"engine": ["anthropic"], "model": ["claude-opsu-4-5"]})
    assert "No list of this fleet has the model" in doubtful.text
    assert (await stored(console))["version"] == 1


async def test_the_form_shows_the_inputs_of_each_tool(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    tool = (await browser.get("/agents/clerk")).text.partition("<code>note_create</code>")[2].partition("</li>")[0]
    assert re.search(r"<dt><code>title</code></dt><dd>string", tool)


async def test_the_json_tab_saves_and_refuses_by_path(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    refused = await browser.post("/agents/clerk/json", data={"version": "1", "text": '{"name": "Clerk", "trst": 1}'})
    assert refused.status_code == 422
    assert "did you mean &#39;trust&#39;" in refused.text
    assert (await browser.post("/agents/clerk/json", data={"version": "1", "text": "{"})).status_code == 422
    saved = await browser.post("/agents/clerk/json", data={"version": "1", "text": '{"name": "Short"}'})
    assert saved.status_code == 303
    assert (await stored(console))["spec"]["name"] == "Short"
    stale = await browser.post("/agents/clerk/json", data={"version": "1", "text": '{"name": "Shorter"}'})
    assert stale.status_code == 409


async def test_versions_say_who_changed_what_and_are_compared_and_rolled_back(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    await made(console)
    await console.api.http.patch("/v1/agents/clerk", json={"instructions": "Line one.\nLine two."})
    await console.api.http.patch("/v1/agents/clerk", json={"instructions": "Line one.\nLine 2."})
    page = (await browser.get("/agents/clerk/versions")).text
    assert page.count("Roll back") >= 2
    assert "instructions" in page
    diff = (await browser.get("/agents/clerk/compare?from=2&to=3")).text
    assert 'class="line removed"><span class="mark">-</span>Line two.' in diff
    assert 'class="line added"><span class="mark">+</span>Line 2.' in diff
    assert 'class="line same"><span class="mark"> </span>Line one.' in diff
    assert "No difference" in (await browser.get("/agents/clerk/compare?from=2&to=2")).text
    assert "Line two." in (await browser.get("/agents/clerk/versions/2")).text
    assert (await browser.get("/agents/clerk/versions/9")).status_code == 404
    assert (await browser.get("/agents/clerk/compare?from=x&to=2")).status_code == 422
    judge = {"rubric": "Is it polite?", "budget_usd": 1}
    await console.api.http.put("/v1/agents/clerk/sampling", json={"percent": 5, "judge": judge})
    assert 'id="drift"' not in (await browser.get("/agents/clerk/versions")).text
    await console.api.fetchval(_DRIFT, agent_id="clerk")
    assert "the mean score was 0.90, and is 0.40" in (await browser.get("/agents/clerk/versions")).text
    back = await browser.post("/agents/clerk/rollback", data={"version": "1"})
    assert back.status_code == 303
    after = await stored(console)
    assert (after["version"], after["spec"]["instructions"]) == (4, FULL["instructions"])


async def test_renaming_leads_to_the_new_id_and_says_a_taken_one(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    taken = await browser.post("/agents/clerk/rename", data={"to": "nova"})
    assert taken.status_code == 422
    assert "nova" in taken.text.partition('class="error"')[2][:200]
    answer = await browser.post("/agents/clerk/rename", data={"to": "secretary"})
    assert answer.headers["location"] == "/agents/secretary/manage"
    assert (await browser.get("/agents/secretary")).status_code == 200
    assert (await browser.get("/agents/clerk")).status_code == 410


async def test_deleting_needs_the_id_to_be_typed(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    assert (await browser.post("/agents/clerk/delete", data={"typed": "clark"})).status_code == 422
    assert (await browser.post("/agents/clerk/delete", data={"typed": "clerk"})).headers["location"] == "/agents"
    assert (await browser.get("/agents/clerk")).status_code == 410


async def test_a_message_is_tried_in_a_conversation_of_its_own(console: Console, browser: httpx2.AsyncClient) -> None:
    await made(console)
    assert (await browser.post("/agents/clerk/try", data={"message": " "})).status_code == 422
    answer = await browser.post("/agents/clerk/try", data={"message": "What is <new>?"})
    assert answer.status_code == 303
    page = (await browser.get(answer.headers["location"])).text
    assert "What is &lt;new&gt;?" in page
    assert 'data-stream="/agents/clerk/try/run_' in page
    runs = (await console.api.http.get("/v1/runs?agent_id=clerk")).json()["items"]
    assert [run["message"][0]["text"] for run in runs] == ["What is <new>?"]


async def test_calls_of_a_tried_run_are_whole_after_a_break_in_which_the_stream_was_lost(
    api: Api, worker: ManualWorker, redis: Redis, browser: httpx2.AsyncClient
) -> None:
    turn = await begun(api, worker)
    run_id, call = turn.claim.run_id, ToolCall("toolu_1", "look", {}, step=0, sequence=0, status="completed")
    started = ToolStatus(tool_call_id=call.id, tool_name="look", status="started")
    await turn.emit(Token(text="I will "), Token(text="look."), started)
    seen = str(turn.said[-1])
    await turn.commit("I will look.", call)
    await turn.finish()
    await redis.delete(run_events(run_id))
    path = f"/agents/{turn.claim.agent_id}/try/{run_id}/events"
    async with browser.stream("GET", path, headers={"Last-Event-ID": seen}) as response:
        frames = [event.data async for event in httpx2.EventSource(response)]
    changes = [change for data in frames if data.startswith("[") for change in orjson.loads(data)]
    rows = [html for _, target, html in changes if target == f"try-{run_id}-tools"]
    assert [row.count("toolu_1") for row in rows] == [1]
    assert "completed" in rows[0]


_DRIFT = """
UPDATE samplings
   SET drift = '{"found_at": "2026-05-01T09:00:00Z", "before": 0.9, "after": 0.4, "p_value": 0, "threshold": 0.001}'
 WHERE agent_id = :agent_id
RETURNING agent_id
"""
PATHS = ("", "/json", "/versions", "/versions/1", "/compare?from=1&to=1", "/try", "/manage")


@pytest.mark.parametrize("path", PATHS)
async def test_another_tenants_agent_is_not_found(path: str, console: Console, other_tenant: Tenant) -> None:
    await made(console)
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(f"/agents/clerk{path}")).status_code == 404


async def test_an_id_in_a_query_or_a_form_changes_no_address_of_the_api(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/agents/~new", params={"from": "../keys"})).status_code == 404
    assert (await browser.get("/agents/nova/try", params={"thread": "../runs"})).status_code == 404
    sent = await browser.post("/agents/nova/try", data={"thread": "../../v1/keys?", "message": "hi"})
    assert sent.status_code == 404


async def test_a_key_without_the_scope_sees_which_one_agents_need(
    console: Console, database: Database, tenant: Tenant
) -> None:
    limited = await make_tenant(database, ("runs",), tenant.id)
    async with console.signed_in(limited.key) as browser:
        answer = await browser.get("/agents")
        assert answer.status_code == 403
        assert "needs a key with the scope <strong>agents:read</strong>" in answer.text


async def test_a_key_without_the_library_of_skills_keeps_the_agents_skills(
    console: Console, browser: httpx2.AsyncClient, database: Database, tenant: Tenant
) -> None:
    text = "---\nname: rhyme\ndescription: Rhymes.\n---\nRhyme."
    assert (await console.api.http.put("/v1/skills/rhyme", json={"skill_md": text})).status_code == 200
    await made(console, skills=["rhyme"])
    assert (await form_of(browser))["skills"] == ["rhyme"]
    limited = await make_tenant(database, ("agents", "runs"), tenant.id)
    async with console.signed_in(limited.key) as narrow:
        form = await form_of(narrow)
        assert form["skills"] == ["rhyme"]
        form["description"] = ["Changed."]
        assert (await narrow.post("/agents/clerk", data=form)).status_code == 303
    assert (await stored(console))["spec"]["skills"] == ["rhyme"]


async def test_a_rollout_is_started_watched_advanced_and_stopped(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    http, base = console.api.http, "/agents/nova/rollouts"
    assert "nova rollout start nova" in (await browser.get(base)).text
    assert "There is no other version" in (await browser.get(f"{base}/~new")).text
    spec = (await http.get("/v1/agents/nova")).json()["spec"]
    text = orjson.dumps({**spec, "model": "candidate"}).decode()
    saved = await browser.post("/agents/nova/json", data={"text": text, "version": "1", "release": "no"})
    assert "No conversation uses it until it is rolled out." in (await browser.get(saved.headers["location"])).text
    fields = fields_of((await browser.get(f"{base}/~new", params={"version": "2"})).text, "rollout")
    assert fields["version"] == ["2"]
    assert fields["steps"][0].startswith("1%:1h\n10%:6h\n")
    wrong = await browser.post(f"{base}/~new", data={**fields, "steps": "ten"})
    shadow = {"shadow_percent": "10", "shadow_budget_usd": "2"}
    assert (wrong.status_code, "&#39;ten&#39; is no step" in wrong.text) == (422, True)
    fields |= {"steps": ["0%\n100%:1h"], "guardrails": ["failure"]}
    begun = await browser.post(f"{base}/~new", data={**fields, **shadow})
    address = begun.headers["location"]
    thread_id = await console.api.thread()
    run_id = await console.api.run(thread_id)
    await worker.play(thread_id)
    await http.post(f"/v1/runs/{run_id}/feedback", json={"score": 1})
    assert "Ratings by version" in (await browser.get("/agents/nova/versions")).text
    page = (await browser.get(address)).text
    assert "100 % of the conversations now" in page
    assert "It is judged next with 10 values; there are 0." in page
    assert 'data-stream="/changes?of=rollout' in page
    assert re.search(r'10 % of the turns, up to \$2.00: <a href="/evaluations/evl_', page)
    assert re.search(r"Runs that ended.*version 1 <strong>1</strong>", page, re.DOTALL)
    await browser.post(f"{address}/advance", data={"step": "0"})
    assert "Make version 2 the current version?" in (await browser.get(address)).text
    assert "step 2 of 2" in (await browser.get(address)).text
    await browser.post(f"{address}/advance", data={"step": "0"})
    assert "The rollout is at step 1" in (await browser.get(address)).text
    await browser.post(f"{address}/stop", data={"reason": "Too curt."})
    stopped = (await browser.get(address)).text
    assert "Stopped: Too curt." in stopped
    assert "Advance" not in stopped
    assert address in (await browser.get(base)).text
