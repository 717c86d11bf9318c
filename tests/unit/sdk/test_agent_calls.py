"""The lines about agents between a worker and a process of users' code, with both ends, and the threads of steps."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from nova_workers.contracts.user_agents import AgentReply, AgentRequest, AgentSaid, as_line
from nova_workers.contracts.user_tools import CallContext
from nova_workers.engines.mcp.agent_lane import AgentLane, UnreadableLine
from nova_workers.sdk import Context, Message
from nova_workers.sdk.agent_calls import AgentCalls
from nova_workers.sdk.agents import UserAgent
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions
from nova_workers.sdk.durable import StepFunction
from nova_workers.sdk.execution import Execution
from nova_workers.sdk.sessions import Sessions
from tests.support.waiting import until

_begun, _ended = threading.Event(), threading.Event()


async def _waits() -> None:
    _begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        _ended.set()


async def _gives_up() -> None:
    raise asyncio.CancelledError


async def _takes_one(number: int) -> int:
    return number


async def _play(context: Context, message: Message) -> str:
    if message.text == "gives up":
        await context.step("give up", _gives_up)
    if message.text == "wrong":
        await context.step("one", cast(Any, _takes_one))
    if message.text == "wait":
        await context.step_once("wait", _waits)
    context.emit(f"{context.tenant_id}: ")
    return "half of a pair: \ud83d" if message.text == "surrogate" else "done"


def _drop(_: int, __: str) -> None:
    """Take text that no test reads."""


@asynccontextmanager
async def _lane() -> AsyncGenerator[AgentLane]:
    """Connect both ends: the process reads from a pipe, and what it writes is taken at once."""
    lane, execution = AgentLane(), Execution()
    sessions = Sessions({"play": UserAgent("play", "", "", _play)}, execution)
    calls = AgentCalls(sessions, execution, lambda line: None if lane.take(line) else pytest.fail(f"{line!r}"))
    loop = asyncio.get_running_loop()
    output, given = os.pipe()
    ends = os.fdopen(output, "rb"), os.fdopen(given, "wb")
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ends[0])
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ends[1])
    pipe = asyncio.StreamWriter(transport, protocol, None, loop)
    lane.open(pipe)

    async def serve() -> None:
        while line := await reader.readline():
            assert calls.take(line)

    serving = asyncio.create_task(serve())
    try:
        yield lane
        await sessions.answer(AgentRequest(do="end", session="s"), None, _drop)
    finally:
        pipe.close()
        await serving
        reading.close()


def _begin(text: str, session: str = "s") -> AgentRequest:
    return AgentRequest(do="next", session=session, agent="play", message=({"type": "text", "text": text},))


async def test_a_call_is_answered_in_the_context_of_its_run() -> None:
    pieces: list[tuple[int, str]] = []

    def report(begins: int, text: str) -> None:
        pieces.append((begins, text))

    async with _lane() as lane:
        said = await lane.ask(_begin("hi"), CallContext(tenant_id="t1"), report)
        assert said.reply == AgentReply(text="t1: done")
        assert pieces == [(0, "t1: ")]
        again = await lane.ask(AgentRequest(do="next", session="unknown"), None, None)
        assert again.reply == AgentReply(known=False)


async def test_text_that_json_has_no_form_for_fails_its_call_only() -> None:
    async with _lane() as lane:
        said = await lane.ask(_begin("surrogate"), CallContext(), None)
        assert said.reply is not None
        assert "surrogates not allowed" in str(said.reply.problem)
        said = await lane.ask(_begin("hi", "another"), CallContext(tenant_id="t1"), None)
        assert said.reply == AgentReply(text="t1: done")


@pytest.mark.parametrize(("text", "error"), [("gives up", "CancelledError"), ("wrong", "missing 1 required")])
async def test_an_async_step_that_fails_as_nothing_else_does_is_answered(text: str, error: str) -> None:
    async with _lane() as lane:
        said = await lane.ask(_begin(text), CallContext(), None)
        assert said.reply is not None
        done = said.reply.done
        if done is None:
            # It took longer than such a step may without being shown as begun.
            performed = (await lane.ask(AgentRequest(do="perform", session="s"), None, None)).reply
            done = None if performed is None else performed.done
        assert done is not None
        assert done.failed
        assert error in done.text


async def test_a_call_that_is_canceled_ends_its_step_and_leaves_no_error_behind() -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: unseen.append(about))
    async with _lane() as lane:
        said = await lane.ask(_begin("wait"), CallContext(), None)
        assert said.reply is not None
        assert said.reply.operations
        asking = asyncio.create_task(lane.ask(AgentRequest(do="perform", session="s"), None, None))
        await until(_begun.is_set)
        asking.cancel()
        await until(_ended.is_set)
        # Its result reaches this loop after the step itself.
        await asyncio.wait({asking})
    gc.collect()
    assert not unseen


async def test_lines_are_not_trusted_and_a_lost_process_ends_its_calls() -> None:
    async with _lane() as lane:
        assert not lane.take(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        assert lane.take(as_line(AgentSaid(agent_call=7, reply=AgentReply(text="for no call"))))
        with pytest.raises(UnreadableLine, match="agent_call") as refused:
            lane.take(b'{"agent_call":"key-5d1e8a77","text":"x"}')
        assert "key-5d1e8a77" not in str(refused.value)
        await lane.ask(_begin("wait"), CallContext(), None)
        asking = asyncio.create_task(lane.ask(AgentRequest(do="perform", session="s"), None, None))
        await asyncio.sleep(0)
        lane.close("it is gone")
        with pytest.raises(ConnectionError, match="it is gone"):
            await asking
        with pytest.raises(ConnectionError, match="it is gone"):
            await lane.ask(_begin("hi"), CallContext(), None)


async def test_plain_functions_take_turns_in_a_thread_and_one_that_does_not_return_keeps_it() -> None:
    execution, kept = Execution(), contextvars.ContextVar("kept", default="nothing")
    release = threading.Event()

    async def call(function: object, timeout_s: float = 10.0) -> object:
        step = StepFunction("step", function, is_async=False, options=ToolOptions(timeout_s=timeout_s))  # type: ignore[arg-type]
        return await execution.call(step, {}, ToolContext())

    def thread() -> tuple[int, str]:
        before = kept.get()
        kept.set("of another call")
        return threading.get_ident(), before

    first, second = await call(thread), await call(thread)
    assert first == second
    assert second == (first[0], "nothing")  # type: ignore[index]
    with pytest.raises(Exception, match="did not end within its time limit"):
        await call(release.wait, timeout_s=0.05)
    third = await call(thread)
    release.set()
    assert third != first
