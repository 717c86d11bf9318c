"""A chat in a browser: sending, streaming, steering, answering, forking, and connections that break."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.console.app import build_console
from nova_workers.contracts import events as live
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import ToolCall
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers
from tests.integration.console.browser.conftest import signed_in
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.servers.asgi import serving
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until


async def _thread_of(page: Page) -> str:
    await page.wait_for_url("**/chat/thr_*")
    return page.url.partition("/chat/")[2].partition("#")[0].partition("?")[0]


async def _begun(page: Page, message: str) -> str:
    """Begin a conversation in the browser; return its thread."""
    await page.goto("/chat")
    await page.get_by_label("Message", exact=True).fill(message)
    await page.keyboard.press("Enter")
    return await _thread_of(page)


async def test_a_first_message_is_answered_as_it_is_written(page: Page, worker: ManualWorker) -> None:
    thread = await _begun(page, "Explain fences")
    turn = await worker.claim(thread)
    await turn.emit(live.Thinking(), live.Reasoning(text="They ask for "), live.Reasoning(text="fences."))
    await expect(page.locator(".turn .thinking summary")).to_have_text("Thinking…")
    pieces = ["# Fences\n\nA **fen", "ce** is:\n\n- one\n- tw", "o\n\n```python\nx = 1\n", "y = 2\n"]
    for piece in pieces:
        await turn.emit(live.Token(text=piece))
    await expect(page.locator(".streamed h1")).to_have_text("Fences")
    await expect(page.locator(".streamed strong")).to_have_text("fence")
    await expect(page.locator(".streamed li")).to_have_text(["one", "two"])
    await expect(page.locator(".streamed pre code")).to_have_text("x = 1\ny = 2\n")
    await turn.emit(live.Token(text="```\n\nDone."))
    await expect(page.locator(".streamed .prose").last).to_have_text("Done.")
    await turn.finish("".join(pieces) + "```\n\nDone.")
    await expect(page.locator(".turn-foot")).to_be_visible()
    await expect(page.locator(".streamed")).to_have_count(0)
    await expect(page.locator(".turn .bubble.assistant h1")).to_have_count(1)
    await expect(page.locator(".turn .bubble.assistant pre .mi")).to_have_text(["1", "2"])
    await expect(page.locator("#chat-queue li")).to_have_count(0)


async def _said(page: Page) -> list[str]:
    """Return the texts of the agent that the page shows, without a stream's empty end."""
    texts = await page.locator(".turn .bubble.assistant").all_inner_texts()
    return [text.strip() for text in texts if text.strip()]


async def test_a_tool_call_unfolds_to_its_arguments_and_result(page: Page, worker: ManualWorker) -> None:
    turn = await worker.claim(await _begun(page, "Look around"))
    await turn.emit(live.Token(text="I look."))
    await turn.emit(live.ToolStatus(tool_call_id="toolu_1", tool_name="look", status="started", summary="looking"))
    await expect(page.locator(".live-call")).to_contain_text("looking")
    call = ToolCall(id="toolu_1", tool_name="look", params={"at": "the <b>sea</b>"}, step=0, sequence=0)
    await turn.commit("I look.", replace(call, status="completed", result=(text_block("waves"),)))
    await expect(page.locator(".live-call")).to_have_count(0)
    await page.locator("details.call > summary").click()
    await expect(page.locator(".call-body")).to_contain_text('"at": "the <b>sea</b>"')
    await expect(page.locator(".call-body")).to_contain_text("waves")
    await turn.emit(live.Token(text="Waves."))
    await expect(page.locator(".streamed")).to_have_text("Waves.")
    # What a person unfolded stays open while the turn goes on.
    await turn.finish("Waves.")
    await expect(page.locator(".turn-foot")).to_be_visible()
    await expect(page.locator(".call-body")).to_be_visible()
    assert await _said(page) == ["I look.", "Waves."]


async def test_text_of_a_lost_attempt_is_gone_and_the_page_ends_with_the_text_of_the_ledger(
    page: Page, worker: ManualWorker
) -> None:
    thread = await _begun(page, "Count")
    turn = await worker.claim(thread)
    await turn.commit("One.", ToolCall(id="toolu_1", tool_name="count", params={}, step=0, sequence=0))
    await turn.emit(live.Token(text="Two, thr"))
    await expect(page.locator(".streamed")).to_have_text("Two, thr")
    await turn.requeue()
    again = await worker.claim(thread)
    await expect(page.locator(".streamed")).to_have_text("")
    await again.emit(live.Token(text="Two "))
    await again.emit(live.Restart(), live.Token(text="Two."))
    await expect(page.locator(".streamed")).to_have_text("Two.")
    await page.reload()
    await expect(page.locator(".streamed")).to_have_text("Two.")
    assert await _said(page) == ["One.", "Two."]


async def test_a_run_that_is_started_elsewhere_appears_in_the_open_conversation(
    page: Page, console: Console, worker: ManualWorker
) -> None:
    thread = await _begun(page, "Hello")
    await worker.play(thread, "Hello!")
    await expect(page.locator(".turn-foot")).to_have_count(1)
    await console.api.run(thread, "from a trigger")
    turn = await worker.claim(thread)
    await turn.emit(live.Token(text="The trigger's answer"))
    await expect(page.locator(".turn .bubble.user").last).to_have_text("from a trigger")
    await expect(page.locator(".streamed")).to_have_text("The trigger's answer")


async def test_while_a_run_works_messages_steer_or_queue_and_the_queue_is_edited(
    page: Page, console: Console, worker: ManualWorker
) -> None:
    thread = await _begun(page, "Work")
    turn = await worker.claim(thread)
    await expect(page.get_by_role("radio", name="Steer")).to_be_checked()
    field = page.get_by_label("Message", exact=True)
    await field.fill("rather quickly")
    await field.press("Enter")
    queued = page.locator("#chat-queue li")
    await expect(queued).to_contain_text("joins the turn at its next step")
    await page.get_by_role("radio", name="Queue").check()
    await field.fill("then the other thing")
    await field.press("Enter")
    await expect(queued).to_have_count(2)
    await queued.nth(1).locator("summary").click()
    await queued.nth(1).get_by_label("The message").fill("then the second thing")
    await queued.nth(1).get_by_role("button", name="Save").click()
    await expect(queued.nth(1).locator("summary")).to_have_text("then the second thing")
    runs = (await console.api.http.get(f"/v1/threads/{thread}/runs")).json()["items"]
    assert [run["message"][0]["text"] for run in runs] == ["then the second thing", "rather quickly", "Work"]
    await queued.nth(1).get_by_role("button", name="Remove").click()
    await expect(queued).to_have_count(1)
    await turn.commit("Working.", ToolCall(id="toolu_1", tool_name="work", params={}, step=0, sequence=0))
    await turn.emit(live.Steered(run_ids=("run_x",)))
    await expect(queued).to_have_count(0)
    await expect(page.locator(".bubble.steering")).to_contain_text("rather quickly")


async def test_a_run_is_canceled_and_its_text_is_kept(page: Page, console: Console, worker: ManualWorker) -> None:
    thread = await _begun(page, "Count to a million")
    turn = await worker.claim(thread)
    await turn.emit(live.Token(text="1, 2, 3"))
    await expect(page.locator(".streamed")).to_have_text("1, 2, 3")
    await page.get_by_role("button", name="Cancel").click()
    run = f"/v1/runs/{turn.claim.run_id}"

    async def is_requested() -> bool:
        return (await console.api.http.get(run)).json()["cancel_requested_at"] is not None

    await until(is_requested)
    await turn.finish("1, 2, 3", status="canceled")
    await expect(page.locator(".turn .banner")).to_contain_text("Canceled")
    assert await _said(page) == ["1, 2, 3"]
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


async def test_a_conversation_is_forked_and_a_message_tried_again(
    page: Page, console: Console, worker: ManualWorker
) -> None:
    thread = await _begun(page, "First")
    await worker.play(thread, "One")
    await console.api.run(thread, "Second")
    await worker.play(thread, "Two")
    await expect(page.locator(".turn-foot")).to_have_count(2)
    await page.get_by_role("button", name="Fork from here").first.click()
    await expect(page.locator(".banner.good")).to_contain_text("This is a fork")
    fork = await _thread_of(page)
    assert fork != thread
    assert await _said(page) == ["One"]
    await page.goto(f"/chat/{thread}")
    await page.locator(".asked .edit summary").last.click()
    await page.get_by_label("The changed message").last.fill("Second, changed")
    await page.get_by_role("button", name="Send in a fork").last.click()
    await page.wait_for_url(lambda url: thread not in url)
    await worker.play(await _thread_of(page), "Two, changed")
    await expect(page.locator(".turn-foot")).to_have_count(2)
    assert await _said(page) == ["One", "Two, changed"]
    assert await page.locator(".bubble.user").all_inner_texts() == ["First", "Second, changed"]
    # Both versions of the message are a step apart, without a reload since the fork began.
    await expect(page.locator(".switch").last).to_contain_text("2 / 2")
    await page.get_by_role("link", name="The version before").click()
    await page.wait_for_url(f"**/chat/{thread}#at-1")
    await expect(page.locator(".switch").last).to_contain_text("1 / 2")
    assert await page.locator(".bubble.user").all_inner_texts() == ["First", "Second"]


async def test_a_page_that_was_offline_has_all_of_the_answer_once(page: Page, worker: ManualWorker) -> None:
    turn = await worker.claim(await _begun(page, "Tell a story"))
    await turn.emit(live.Token(text="Once upon "))
    await expect(page.locator(".streamed")).to_have_text("Once upon")
    await page.context.set_offline(True)
    await turn.emit(live.Token(text="a time "))
    field = page.get_by_label("Message", exact=True)
    await field.fill("kept while offline")
    await field.press("Enter")
    await expect(page.locator("[data-problem]:visible")).to_contain_text("Not sent")
    assert await field.input_value() == "kept while offline"
    await page.context.set_offline(False)
    await turn.emit(live.Token(text="there was "))
    await expect(page.locator(".streamed")).to_have_text("Once upon a time there was")
    await turn.finish("Once upon a time there was an end.")
    await expect(page.locator(".turn-foot")).to_be_visible()
    assert await _said(page) == ["Once upon a time there was an end."]


@proves("console.away")
async def test_pages_say_that_the_fleet_is_away_and_go_on_by_themselves(
    chromium: Browser, shared: SharedServers, console: Console, worker: ManualWorker
) -> None:
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(FaultProxy.to_http(console.api.url))
        app = build_console(shared.settings, api_url=link.url)
        url = await stack.enter_async_context(serving(app, patient=True, http=GuardedProtocol))
        page = await stack.enter_async_context(signed_in(chromium, url, console.api.tenant.key))
        turn = await worker.claim(await _begun(page, "Tell a story"))
        await turn.emit(live.Token(text="Once upon "))
        await expect(page.locator(".streamed")).to_have_text("Once upon")
        keys = await page.context.new_page()
        await keys.goto("/keys")
        for each in (page, keys):
            await expect(each.locator("#away")).to_be_hidden()
        # A fleet that hangs, and one that is gone.
        link.blocks_answers = True
        for each in (page, keys):
            await expect(each.locator("#away")).to_be_visible()
        link.blocks_answers = False
        for each in (page, keys):
            await expect(each.locator("#away")).to_be_hidden()
        link.refuses = True
        link.reset()
        for each in (page, keys):
            await expect(each.locator("#away")).to_be_visible()
            await expect(each.locator("#offline")).to_be_hidden()
        await keys.goto("/runs")
        await expect(keys.locator("h1")).to_have_text("The fleet does not answer")
        link.heal()
        await expect(keys.locator("h1")).to_have_text("Runs")
        await turn.emit(live.Token(text="a time"))
        await expect(page.locator(".streamed")).to_have_text("Once upon a time")
        for each in (page, keys):
            await expect(each.locator("#away")).to_be_hidden()
        await turn.finish("Once upon a time")


async def test_what_an_agent_writes_cannot_run_or_call_home(page: Page, worker: ManualWorker) -> None:
    evil = (
        "<script>document.title='evil'</script> <img src=x onerror=\"document.title='evil'\">\n\n"
        "![pixel](https://evil.example/pixel.png) [click](javascript:document.title='evil') [out](https://evil.example/)"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    turn = await worker.claim(await _begun(page, "Be <b>evil</b>"))
    await turn.emit(live.Token(text=evil), live.Reasoning(text=evil))
    await expect(page.locator(".streamed .prose").first).to_be_visible()
    await turn.finish(evil)
    await expect(page.locator(".turn-foot")).to_be_visible()
    turns = page.locator("#turns")
    assert await turns.locator("script, img, b, [onerror]").count() == 0
    links = await turns.locator(".prose a").evaluate_all("links => links.map(link => [link.href, link.rel])")
    assert links == [
        [address, "noopener noreferrer nofollow"]
        for address in ("https://evil.example/pixel.png", "https://evil.example/")
    ]
    assert await page.title() != "evil"
    assert not [url for url in asked if "evil.example" in url]


async def test_a_conversation_has_no_accessibility_faults_and_is_not_wider_than_a_phone(
    page: Page, console: Console, worker: ManualWorker
) -> None:
    thread = await _begun(page, "Look around")
    call = ToolCall(id="toolu_1", tool_name="look", params={"at": "x" * 200}, step=0, sequence=0)
    turn = await worker.claim(thread)
    await turn.commit("I look.", call)
    await turn.finish(
        "| a | b |\n| - | - |\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n[out](https://example.com)\n\n$$x^2$$"
    )
    await console.api.http.post(f"/v1/threads/{thread}/fork", json={})
    await console.api.run(thread, "More")
    turn = await worker.claim(thread)
    await turn.emit(live.Reasoning(text="hm"), live.Token(text="Half"))
    await console.api.run(thread, "Queued " + "y" * 200)
    await page.reload()
    await expect(page.locator(".streamed")).to_have_text("Half")
    await expect(page.locator("#chat-queue li")).to_have_count(1)
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        found = await Axe().run(page)
        faults = [
            one["nodes"][0]["html"][:200]
            for one in found.response["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
        assert faults == []
    for width in (360, 1180, 1600):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
