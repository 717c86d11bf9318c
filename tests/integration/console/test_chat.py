"""The chat without a script: pages, plain forms, files, and what other tenants and keys may not see."""

from __future__ import annotations

import asyncio
import base64
import time
from itertools import pairwise

import httpx2
import pytest
from structlog.testing import capture_logs

from nova_workers.base.stopping import stop_tasks
from nova_workers.console.chat.transcript import load_conversation
from nova_workers.contracts.content import text_block
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.engine import EngineError, ToolCall
from nova_workers.domain.files.rules import OutgoingFile, send_file
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.console.conftest import Console
from tests.integration.history.past_conversations import PastConversations
from tests.requirements import proves
from tests.support.data.media_samples import GIF, png


async def _said(console: Console, worker: ManualWorker, count: int, thread: str | None = None) -> str:
    """Make a conversation of some turns; return its thread."""
    thread = thread or await console.api.thread()
    for at in range(count):
        await console.api.run(thread, f"question {at}.")
        await worker.play(thread, f"answer {at}.")
    return thread


async def test_a_first_message_by_a_plain_form_begins_a_conversation(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    sent = await browser.post(
        "/chat", data={"agent_id": "nova", "message": "Hello <b>you</b>"}, files={"files": ("", b"")}
    )
    assert sent.status_code == 303, sent.text
    page = (await browser.get(sent.headers["location"])).text
    assert "Hello &lt;b&gt;you&lt;/b&gt;" in page
    assert "Hello &lt;b&gt;you&lt;/b&gt;" in (await browser.get("/chat")).text


@proves("threads.imported")
async def test_an_imported_conversation_is_shown_and_continued(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "find_it", "input": {}}
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "up"}]},
        {"role": "assistant", "content": "In the attic."},
    ]
    thread = await console.api.thread(messages=messages)
    assert "Where is it?" in (await browser.get("/chat")).text
    await _said(console, worker, 1, thread)
    page = (await browser.get(f"/chat/{thread}")).text
    for text in ("Where is it?", "find_it", "In the attic.", "imported", "question 0.", "answer 0."):
        assert text in page


async def test_a_form_that_is_sent_twice_is_one_message(console: Console, browser: httpx2.AsyncClient) -> None:
    thread = await console.api.thread()
    for _ in range(2):
        sent = await browser.post(
            f"/chat/{thread}/messages", data={"message": "once", "key": "evt_1"}, files={"files": ("", b"")}
        )
        assert sent.status_code == 303, sent.text
    assert len((await console.api.http.get(f"/v1/threads/{thread}/runs")).json()["items"]) == 1


async def test_images_and_text_files_go_with_a_message_and_are_shown(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread, image = await console.api.thread(), png(3, 2)
    files = [("files", ("plot.png", image, "image/png")), ("files", ("notes.txt", "naïve".encode(), "text/plain"))]
    sent = await browser.post(f"/chat/{thread}/messages", data={"message": "Look"}, files=files)
    assert sent.status_code == 303, sent.text
    turn = await worker.play(thread, "I see.")
    page = (await browser.get(f"/chat/{thread}")).text
    assert "naïve" in page
    address = page.partition('<img src="')[2].partition('"')[0]
    assert address.startswith(f"/chat/{thread}/media/0/")
    shown = await browser.get(address)
    assert (shown.headers["content-type"], shown.content) == ("image/png", image)
    assert (await browser.get(address + "7")).status_code == 404
    run = (await console.api.http.get(f"/v1/runs/{turn.claim.run_id}")).json()
    assert base64.b64decode(run["message"][0]["source"]["data"]) == image
    assert [block["type"] for block in run["message"]] == ["image", "document", "text"]


async def test_a_file_that_models_do_not_read_is_refused_with_its_name(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    files = {"files": ("a.zip", b"PK\x00\x01", "application/zip")}
    sent = await browser.post(
        f"/chat/{thread}/messages", data={"message": "x"}, files=files, headers={"Nova-Fragment": "form"}
    )
    assert sent.status_code == 422
    assert "a.zip" in sent.text
    plain = await browser.post(f"/chat/{thread}/messages", data={"message": "keep this"}, files=files)
    assert plain.status_code == 422
    assert "keep this</textarea>" in plain.text
    assert "a.zip" in plain.text


async def test_a_long_conversation_is_read_in_pages_from_its_end(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread = await _said(console, worker, 22)
    page = (await browser.get(f"/chat/{thread}")).text
    assert "answer 21." in page
    assert "answer 1." not in page
    assert f'href="/chat/{thread}?to=1"' in page
    earlier = (await browser.get(f"/chat/{thread}?to=1")).text
    assert "answer 0." in earlier
    assert "Go to the newest" in earlier
    assert "data-stream" not in earlier


@pytest.mark.usefixtures("own_console")
async def test_a_long_answer_and_a_long_message_are_shown_while_others_get_their_pages(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    question = "\n".join(f"line {number}" for number in range(200))
    await console.api.run(thread, question)
    row = "| north | **1,204** | see [the page](https://metrics.example.com/weekly) |\n"
    await worker.play(thread, "| a | b | c |\n| - | - | - |\n" + row * 1_400)
    await browser.post(f"/chat/{thread}/name", data={"title": "🎉 مراجعة", "label": ""})
    busy_s = [time.thread_time()]

    async def look() -> None:
        while True:
            await asyncio.sleep(0.002)
            busy_s.append(time.thread_time())

    looking = asyncio.create_task(look())
    page = (await browser.get(f"/chat/{thread}")).text
    await stop_tasks([looking])
    assert page.count("<strong>1,204</strong>") == 1_400
    assert '<div class="said" dir="auto" tabindex="0">line 0' in page
    assert "<title>🎉 مراجعة" in page
    assert max(after - before for before, after in pairwise(busy_s)) < 0.1, "The loop was held up."


@pytest.mark.usefixtures("own_console")
async def test_an_open_conversation_reads_an_attached_image_once(console: Console, worker: ManualWorker) -> None:
    thread = await console.api.thread()
    large = GIF[:10] + bytes(100_000) + GIF[10:]
    image = {"type": "base64", "media_type": "image/gif", "data": base64.b64encode(large).decode()}
    blocks = [{"type": "image", "source": image}, {"type": "text", "text": "Look"}]
    await console.api.http.post(f"/v1/threads/{thread}/runs", json={"message": blocks})
    turn = await worker.claim(thread)
    client = console.state.client.with_key(console.api.tenant.key)
    first = await load_conversation(client, thread, after=-1)
    await turn.commit("First I look at it.")
    with capture_logs() as logs:
        second = await load_conversation(client, thread, after=-1, seen=first)
    (shown,) = second.turns
    assert [part.text for part in shown.parts] == ["Look", "First I look at it."]
    assert [media.kind for part in shown.parts for media in part.media] == ["image"]
    read = sum(entry.get("response_bytes", 0) for entry in logs)
    assert 0 < read < len(image["data"])


async def test_a_turn_is_forked_and_tried_again_by_plain_forms(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread = await _said(console, worker, 2)
    first, second = reversed((await console.api.http.get(f"/v1/threads/{thread}/turns")).json()["items"])
    forked = await browser.post(f"/chat/{thread}/turns/{first['id']}/fork")
    fork = (await browser.get(forked.headers["location"])).text
    assert "answer 0." in fork
    assert "answer 1." not in fork
    again = await browser.post(f"/chat/{thread}/turns/{second['id']}/retry", data={"depth": "1"})
    tried = again.headers["location"].rpartition("/")[2]
    (run,) = (await console.api.http.get(f"/v1/threads/{tried}/runs")).json()["items"]
    assert run["message"][0]["text"] == "question 1."
    other = await browser.post(f"/chat/{thread}/turns/{first['id']}/retry", data={"depth": "0", "message": "else"})
    (run,) = (await console.api.http.get(f"/v1/threads/{other.headers['location'].rpartition('/')[2]}/runs")).json()[
        "items"
    ]
    assert run["message"][0]["text"] == "else"
    assert (await browser.post(f"/chat/{thread}/turns/{first['id']}/retry", data={"depth": "1"})).status_code == 404


@proves("console.forks-once")
async def test_a_message_that_is_sent_again_twice_has_one_fork_and_the_way_to_it(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread = await _said(console, worker, 2)
    second, _ = (await console.api.http.get(f"/v1/threads/{thread}/turns")).json()["items"]
    path, form = f"/chat/{thread}/turns/{second['id']}", {"depth": "1", "key": "evt_1", "message": "else"}
    first, again = [await browser.post(f"{path}/retry", data=form) for _ in range(2)]
    assert first.headers["location"] == again.headers["location"]
    # Another message of the same page is another fork.
    other = await browser.post(f"{path}/retry", data=form | {"message": "something else"})
    forks = [answer.headers["location"].rpartition("/")[2] for answer in (first, other)]
    assert forks[0] != forks[1]
    for fork in forks:
        assert len((await console.api.http.get(f"/v1/threads/{fork}/runs")).json()["items"]) == 1
        await worker.play(fork, "other answer.")
    page = (await browser.get(f"/chat/{forks[0]}")).text
    assert 'aria-label="Version 2 of 3"' in page
    assert f'href="/chat/{thread}#at-1"' in page
    assert f'href="/chat/{forks[1]}#at-1"' in page


async def test_a_conversation_is_a_markdown_file(console: Console, browser: httpx2.AsyncClient) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sea"}}
    messages = [
        {"role": "user", "content": "Where *is* it?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "```waves```"}]},
        {"role": "assistant", "content": "In the **sea**."},
    ]
    thread = await console.api.thread(messages=messages)
    file = await browser.get(f"/chat/{thread}/export.md")
    assert file.headers["content-type"] == "text/markdown; charset=utf-8"
    assert file.headers["content-disposition"] == f'attachment; filename="{thread}.md"'
    said = [line for line in file.text.splitlines() if line and not line.startswith("## ")]
    assert said[2:] == [
        *("Where *is* it?", "I look.", "**Tool `look`**", "```json", "{", '  "at": "sea"', "}", "```"),
        *("**Result**", "````", "```waves```", "````", "In the **sea**."),
    ]
    assert (await browser.get("/chat/thr_nowhere/export.md")).status_code == 404


async def test_a_failed_turn_says_what_happened(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread = await console.api.thread()
    await console.api.run(thread, "x")
    turn = await worker.claim(thread)
    await turn.finish("", status="failed", error=EngineError("rate_limit", "429 from the vendor", retryable=True))
    page = (await browser.get(f"/chat/{thread}")).text
    assert "takes no more requests for now" in page
    assert "429 from the vendor" in page
    sent = await browser.post(f"/chat/{thread}/turns/{turn.claim.turn_id}/again", data={"depth": "0"})
    assert sent.status_code == 303
    runs = (await console.api.http.get(f"/v1/threads/{thread}/runs")).json()["items"]
    assert [run["message"][0]["text"] for run in runs] == ["x", "x"]


@proves("engine.content-restored")
async def test_one_button_brings_back_what_was_left_out(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    thread = await _said(console, worker, 1)
    (turn,) = (await console.api.http.get(f"/v1/threads/{thread}/turns")).json()["items"]
    await worker.database.execute(
        "UPDATE turns SET refused_blocks = :notes WHERE id = :turn_id", notes={"a": "[A picture]"}, turn_id=turn["id"]
    )
    page = (await browser.get(f"/chat/{thread}")).text
    assert "[A picture]" in page
    action = f"/chat/{thread}/turns/{turn['id']}/restore"
    assert f'action="{action}"' in page
    assert (await browser.post(action)).status_code == 303
    assert "[A picture]" not in (await browser.get(f"/chat/{thread}")).text


async def test_a_title_and_a_label_are_set_and_cleared_and_the_conversation_is_deleted(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread(label="ops")
    await browser.post(f"/chat/{thread}/name", data={"title": "Birds", "label": ""})
    state = (await console.api.http.get(f"/v1/threads/{thread}")).json()
    assert (state["title"], state["label"]) == ("Birds", None)
    deleted = await browser.post(f"/chat/{thread}/delete")
    assert deleted.headers["location"] == "/chat"
    assert (await browser.get(f"/chat/{thread}")).status_code == 410


async def test_a_search_marks_the_words_and_leads_to_the_turn(
    console: Console, browser: httpx2.AsyncClient, database: Database
) -> None:
    past = PastConversations(database)
    run = await past.say(
        "A heron & <i>co</i>",
        "A bird.",
        thread=await past.thread(console.api.tenant.id, title="Birds"),
        tenant_id=console.api.tenant.id,
    )
    page = (await browser.get("/search?q=heron")).text
    assert "A <mark>heron</mark> &amp; &lt;i&gt;co&lt;/i&gt;" in page
    assert "Birds" in page
    address = page.partition('class="rows hits">')[2].partition('href="')[2].partition('"')[0]
    assert run.message_ids[0] in (await browser.get(address.partition("#")[0])).text
    assert "is not a date" in (await browser.get("/search?q=heron&since=yesterday")).text
    assert "Nothing fits" in (await browser.get("/search?q=heron&agent=agent-builder")).text
    untitled = await past.say("Which bird is it?", "A grey heron.", tenant_id=console.api.tenant.id)
    asked = [{"type": "text", "text": "Which bird is it?"}]
    await database.execute("UPDATE runs SET content = :asked WHERE id = :id", asked=asked, id=untitled.run_id)
    # Without a title a conversation has its first words.
    assert "<strong>Which bird is it?</strong>" in (await browser.get("/search?q=heron")).text


async def test_what_an_agent_sent_and_what_the_agent_that_it_asked_cost_is_at_the_tool_call(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker, other_tenant: Tenant
) -> None:
    child, thread, image = await console.api.thread(), await console.api.thread(), png(3, 2)
    child_run = await console.api.run(child, "part of it")
    await worker.play(child)
    await worker.database.execute(
        "UPDATE usage SET input_tokens = 2500, cost_usd = 0.5 WHERE run_id = :run_id", run_id=child_run
    )
    run_id = await console.api.run(thread, "Draw it")
    sender = Sender(console.api.tenant.id, "nova", thread, run_id)
    work = Work(worker.database)
    plot = await send_file(work, sender, OutgoingFile("plot.png", image, "The <b>plot</b>"))
    page = await send_file(work, sender, OutgoingFile("page.svg", b"<svg onload='x'/>", None))
    theirs = await send_file(
        Work(worker.database),
        Sender(other_tenant.id, "nova", thread, run_id),
        OutgoingFile("secret.txt", b"theirs", None),
    )
    turn = await worker.claim(thread)
    said = f"Sent plot.png as {plot.id}, page.svg as {page.id} and {theirs.id}."
    await turn.commit(
        "Look:",
        ToolCall("call_1", "file_send", {}, step=0, sequence=0, status="completed", result=(text_block(said),)),
        ToolCall("call_2", "ask_agent", {}, step=0, sequence=1, status="completed", result=(text_block("part"),)),
    )
    await worker.database.execute(
        "UPDATE tool_calls SET spawned_run_id = :child WHERE call_id = 'call_2' AND turn_id = :turn_id",
        child=child_run,
        turn_id=turn.claim.turn_id,
    )
    await turn.finish("Done.")
    shown = (await browser.get(f"/chat/{thread}")).text
    answer = shown.partition('class="turns"')[2].partition("</ol>")[0]
    assert f'<img src="/files/{plot.id}/content" alt="The &lt;b&gt;plot&lt;/b&gt;"' in answer
    assert f'href="/files/{page.id}"' in answer
    assert f"/files/{page.id}/content" not in answer
    assert "secret.txt" not in shown
    assert answer.index(f"/files/{plot.id}") < answer.index("Done.")
    asked = answer.partition("call_2")[2]
    assert "$0.50" in asked
    assert "2.5k tokens in" in asked
    assert (await browser.get(f"/files/{plot.id}/content")).content == image


@pytest.mark.parametrize("path", ["", "/events", "/media/0/msg_1/0"])
async def test_another_tenants_conversation_is_not_found(
    path: str, console: Console, other_tenant: Tenant, worker: ManualWorker
) -> None:
    thread = await _said(console, worker, 1)
    async with console.signed_in(other_tenant.key) as other:
        answer = await other.get(f"/chat/{thread}{path}")
        assert answer.status_code == 404 or "deleted" in answer.text
        assert "question 0" not in answer.text
        assert (await other.post(f"/chat/{thread}/delete")).status_code == 404


async def test_a_key_without_the_scope_sees_which_one_is_needed(console: Console, database: Database) -> None:
    limited = await make_tenant(database, ("workspace",), console.api.tenant.id)
    async with console.signed_in(limited.key) as browser:
        answer = await browser.get("/chat")
        assert answer.status_code == 403
        assert "runs" in answer.text


async def test_conversations_are_listed_as_mine_and_by_what_began_them_and_archived_ones_apart(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    mine = await console.api.thread(title="Mine to plan")
    await console.api.thread(title="From the mail", metadata={"channel": "mail"})
    key = (await console.api.http.post("/v1/keys", json={"name": "other", "scopes": ["runs"]})).json()["key"]
    theirs = {"title": "Of a colleague"}
    await console.api.http.post("/v1/threads", json=theirs, headers={"Authorization": f"Bearer {key}"})

    async def listed(query: str = "") -> set[str]:
        page = (await browser.get(f"/chat{query}")).text
        return {title for title in ("Mine to plan", "From the mail", "Of a colleague") if f">{title}</a>" in page}

    assert await listed() == {"Mine to plan", "From the mail", "Of a colleague"}
    assert await listed("?of=mine") == {"Mine to plan", "From the mail"}
    assert await listed("?of=channels") == {"From the mail"}
    assert await listed("?of=triggers") == await listed("?of=archived") == set()
    archived = await browser.post(f"/chat/{mine}/mark", data={"archived": "yes", "back": "?of=mine"})
    assert archived.headers["location"] == "/chat?of=mine"
    assert await listed("?of=mine") == {"From the mail"}
    assert await listed("?of=archived") == {"Mine to plan"}
    back = await browser.post(f"/chat/{mine}/mark", data={"archived": "no", "back": "//elsewhere"})
    assert back.headers["location"] == f"/chat/{mine}"
    assert await listed("?of=mine") == {"Mine to plan", "From the mail"}
    assert (await browser.get("/chat?of=space")).status_code == 422


async def test_a_pinned_conversation_stands_first_in_both_lists(console: Console, browser: httpx2.AsyncClient) -> None:
    kept = await console.api.thread(title="Kept at hand")
    other = await console.api.thread(title="Newer one")
    await browser.post(f"/chat/{kept}/mark", data={"pinned": "yes"})
    for path in ("/chat", f"/chat/{other}"):
        page = (await browser.get(path)).text
        lists = page[page.index("Pinned<") :]
        assert lists.index("Kept at hand") < lists.index("Today<") < lists.index("Newer one")
    await browser.post(f"/chat/{kept}/mark", data={"pinned": "no", "back": "?"})
    assert "Pinned<" not in (await browser.get("/chat")).text


async def test_the_model_that_was_chosen_for_a_message_stays_chosen(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    data = {"agent_id": "nova", "message": "Hello", "model": "opus"}
    sent = await browser.post("/chat", data=data, files={"files": ("", b"")})
    thread = sent.headers["location"].removeprefix("/chat/").removesuffix("#end")
    assert (await console.api.http.get(f"/v1/threads/{thread}/runs")).json()["items"][0]["model"] == "opus"
    assert 'name="model" value="opus"' in (await browser.get(f"/chat/{thread}")).text
