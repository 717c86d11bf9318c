"""Streams of changes to a page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from nova_workers.base.errors import Unavailable
from nova_workers.console import app
from nova_workers.console.fleet_watch import PATIENCE_S, PAUSE_S, FleetWatch
from nova_workers.console.live import DONE, RENEW, RENEW_S, Change, renewals, stream
from nova_workers.contracts.changes import SCOPE_OF
from tests.requirements import proves
from tests.support.waiting import pass_time, until


def _body(changes: AsyncGenerator[Change], ask: Callable[[], Awaitable[bool]] | None = None) -> AsyncGenerator[bytes]:
    return cast(AsyncGenerator[bytes], stream(FleetWatch(ask or _answers), changes).body_iterator)


async def _answers() -> bool:
    return True


async def _sent(changes: AsyncGenerator[Change]) -> list[str]:
    body = _body(changes)
    return [frame.decode() async for frame in body]


def _changes(frames: list[str]) -> list[list[str]]:
    data = [
        line.removeprefix("data: ") for frame in frames for line in frame.splitlines() if line.startswith("data: [")
    ]
    return [change for one in data for change in json.loads(one)]


async def test_changes_come_in_order_with_the_id_of_the_last_and_then_the_end() -> None:
    async def changes() -> AsyncGenerator[Change]:
        for number in range(5):
            yield Change("append", "log", f"<p>{number}</p>", id=f"1-{number}")
        yield DONE

    frames = await _sent(changes())
    assert _changes(frames) == [["append", "log", f"<p>{number}</p>"] for number in range(5)]
    assert "id: 1-4" in frames[-2]
    assert frames[-1] == "event: done\ndata: {}\n\n"


async def test_changes_that_follow_each_other_closely_are_sent_together() -> None:
    async def changes() -> AsyncGenerator[Change]:
        for number in range(200):
            yield Change("append", "log", str(number))

    frames = await _sent(changes())
    assert len(_changes(frames)) == 200
    assert len(frames) < 10


async def test_the_first_change_after_a_pause_does_not_wait_for_others() -> None:
    more = asyncio.Event()

    async def changes() -> AsyncGenerator[Change]:
        yield Change("inner", "status", "running")
        await more.wait()

    body = _body(changes())
    assert b"open" in await anext(body)
    assert b"running" in await asyncio.wait_for(anext(body), 60)
    more.set()
    assert [frame async for frame in body] == []


async def test_of_two_replacements_of_an_element_the_last_is_sent() -> None:
    async def changes() -> AsyncGenerator[Change]:
        yield Change("append", "log", "x")
        for number in range(3):
            yield Change("replace", "total", f"<b id=total>{number}</b>")
        yield DONE

    shown = _changes(await _sent(changes()))
    assert shown[0] == ["append", "log", "x"]
    assert shown[-1] == ["replace", "total", "<b id=total>2</b>"]


async def test_an_error_of_the_api_ends_the_stream_so_that_the_browser_comes_back() -> None:
    async def changes() -> AsyncGenerator[Change]:
        yield Change("append", "log", "before")
        raise Unavailable("The API is restarting.")

    with capture_logs() as lines:
        frames = await _sent(changes())
    assert _changes(frames) == [["append", "log", "before"]]
    assert "done" not in frames[-1]
    assert lines[0]["event"] == "console_stream_ended"


async def test_a_defect_in_a_page_is_logged_with_its_traceback() -> None:
    async def changes() -> AsyncGenerator[Change]:
        yield Change("append", "log", "before")
        raise ZeroDivisionError

    with capture_logs() as lines:
        await _sent(changes())
    assert (lines[0]["event"], lines[0]["exc_info"]) == ("console_stream_failed", True)


async def test_closing_the_page_closes_its_source() -> None:
    closed = asyncio.Event()

    async def changes() -> AsyncGenerator[Change]:
        try:
            yield Change("append", "log", "x")
            await asyncio.Event().wait()
        finally:
            closed.set()

    body = _body(changes())
    await anext(body)
    await anext(body)
    await body.aclose()
    await asyncio.wait_for(closed.wait(), 60)


async def _from(queue: asyncio.Queue[str | None]) -> AsyncGenerator[str]:
    while (event := await queue.get()) is not None:
        yield event


def _queue(*events: str | None) -> asyncio.Queue[str | None]:
    queue = asyncio.Queue[str | None]()
    for event in events:
        queue.put_nowait(event)
    return queue


async def test_old_events_at_the_begin_of_a_stream_cause_one_renewal() -> None:
    loop = asyncio.get_running_loop()
    queue, began = _queue(*["step"] * 500), loop.time()
    news = renewals(_from(queue), lambda event: event == "step")
    await anext(news)
    assert loop.time() - began >= RENEW_S * 0.9
    queue.put_nowait(None)
    assert [None async for _ in news] == []


async def test_news_that_come_while_a_page_is_renewed_are_renewed_once_after_a_pause() -> None:
    loop = asyncio.get_running_loop()
    queue = _queue("step")
    news = renewals(_from(queue), lambda event: event == "step")
    await anext(news)
    renewed = loop.time()
    for event in ("step", "token", "step"):
        queue.put_nowait(event)
    await anext(news)
    assert loop.time() - renewed >= RENEW_S * 0.9
    queue.put_nowait("token")
    queue.put_nowait(None)
    assert [None async for _ in news] == []


async def test_the_last_news_are_renewed_at_once_when_the_events_end() -> None:
    loop = asyncio.get_running_loop()
    queue = _queue("step", "step", None)
    began = loop.time()
    assert len([None async for _ in renewals(_from(queue), lambda _: True)]) == 1
    assert loop.time() - began < RENEW_S


async def test_an_error_of_the_events_comes_after_the_renewal_of_what_preceded_it() -> None:
    async def events() -> AsyncGenerator[str]:
        yield "step"
        raise Unavailable("gone")

    news = renewals(events(), lambda _: True)
    await anext(news)
    with pytest.raises(Unavailable):
        await anext(news)


async def test_closing_the_renewals_closes_the_events() -> None:
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[str]:
        try:
            yield "step"
            await asyncio.Event().wait()
        finally:
            closed.set()

    news = renewals(events(), lambda _: True)
    await anext(news)
    await news.aclose()
    assert closed.is_set()


@pytest.mark.parametrize("sent", [1, 2, 3])
async def test_a_stream_that_a_browser_leaves_leaves_no_task_behind(sent: int) -> None:
    """While a frame is sent, which the browser does not read, and while there is nothing to send."""
    leaves, frames = asyncio.Event(), list[MutableMapping[str, object]]()

    async def events() -> AsyncGenerator[int]:
        yield 1
        await asyncio.Event().wait()

    async def changes() -> AsyncGenerator[Change]:
        async with aclosing(renewals(events(), lambda _: True)) as news:
            async for _ in news:
                yield RENEW

    async def receive() -> dict[str, object]:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        frames.append(message)
        if len(frames) > sent:
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    serving = asyncio.create_task(stream(FleetWatch(_answers), changes())({"type": "http"}, receive, send))
    # The head of the response, what opens the stream, and one renewal.
    await until(lambda: len(frames) > min(sent, 2))
    leaves.set()
    await serving
    assert asyncio.all_tasks() - before == set()


@proves("console.away")
async def test_a_stream_says_when_the_fleet_does_not_answer_and_when_it_does_again() -> None:
    away = False

    async def ask() -> bool:
        return not away

    body = _body(_nothing(), ask)
    assert b"open" in await anext(body)
    away = True
    assert _changes([(await anext(body)).decode()]) == [["show", "away", ""]]
    away = False
    assert _changes([(await anext(body)).decode()]) == [["hide", "away", ""]]
    await body.aclose()


@proves("console.away")
async def test_a_fleet_that_hangs_or_fails_in_a_new_way_does_not_answer_and_is_asked_once_for_all_pages() -> None:
    asked = 0

    async def hang() -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise RuntimeError("of a new kind")
        await asyncio.Event().wait()
        return True

    watch = FleetWatch(hang)
    pages = [watch.changes() for _ in range(3)]
    shown = [asyncio.create_task(anext(page)) for page in pages]
    await pass_time(PATIENCE_S)
    assert await asyncio.gather(*shown) == [False] * 3
    assert asked == 1
    with capture_logs() as logs:
        await pass_time(PAUSE_S)
        await until(lambda: logs)
    assert logs[0]["event"] == "console_watch_failed"
    for page in pages:
        await page.aclose()
    seen = asked
    await pass_time(60)
    assert asked == seen, "No page is open."


def test_what_is_live_of_a_page_is_all_of_it() -> None:
    """Only what grows by single words is live by itself; what stood beside another live part would be older than it."""
    templates = Path(app.__file__).parent / "templates"
    parts = {"chat/thread.html", "agents/try_parts.html"}
    for path in templates.rglob("*.html"):
        name, text = path.relative_to(templates).as_posix(), path.read_text()
        if name not in parts:
            live = text.partition("{% block live %}")[2].partition("{% endblock %}")[0]
            assert text.count("data-refresh") + text.count("data-stream") == live.count("data-"), name


def test_what_a_page_shows_of_stored_things_does_not_grow_old() -> None:
    templates = Path(app.__file__).parent / "templates"
    names = ("list", "show", "board", "versions", "rollout", "rollouts", "history")
    unchanging = {"connect/show.html", "files/show.html"}
    pages = {path for name in names for path in templates.rglob(f"{name}.html")}
    stale = [path.relative_to(templates).as_posix() for path in pages if "{% block live %}" not in path.read_text()]
    assert set(stale) <= unchanging


def test_the_title_of_a_page_of_one_thing_names_the_thing() -> None:
    templates = Path(app.__file__).parent / "templates"
    pages = [
        path for name in ("show", "edit", "secret", "history", "version") for path in templates.rglob(f"{name}.html")
    ]
    of_all = {"home", "usage", "fleet", "connect", "tenant"}
    titles = {path: path.read_text().partition("{% block title %}")[2].partition("{% endblock %}")[0] for path in pages}
    assert [str(path) for path, title in titles.items() if "{{" not in title and path.parent.name not in of_all] == []


async def _nothing() -> AsyncGenerator[Change]:
    await asyncio.Event().wait()
    yield DONE


def test_pages_that_show_many_things_are_live_by_what_changes_and_not_by_the_clock() -> None:
    templates = Path(app.__file__).parent / "templates"
    for name in ("home/show", "runs/list", "inbox/list", "tasks/board", "triggers/list", "orchestrations/list"):
        text = (templates / f"{name}.html").read_text()
        live = text.partition("{% block live %}")[2].partition("{% endblock %}")[0]
        named = re.findall(r"of=(\w+)", live.partition('data-stream="/changes?')[2].partition('"')[0])
        assert named, name
        assert set(named) <= SCOPE_OF.keys(), name
        assert "data-refresh" not in text, name
