"""Sessions: any worker continues any of them, and a missing one is replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineCallbacks
from tests.contract.engines.stage import Bench
from tests.integration.engines.claude_agent.claude_turns import (
    Sessions,
    conversation_of,
    options,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.support.servers.model_server import ModelServer, Part, Stream


@pytest.mark.long  # so does test_fleet.py, through the ledger
async def test_another_worker_resumes_the_session(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions
) -> None:
    bench = Bench()
    given = options(sessions=sessions, mcp_servers=bench.servers())
    server.reply(tool_response(("mcp__nova__count", {})), text_response("One."), text_response("Two."))
    first = await make_engine().run("first", given, "sandbox")
    second = await make_engine().run("second", given, "sandbox", session_id=first.session_id)
    assert second.session_id not in {None, first.session_id}
    assert conversation_of(server) == [
        ("user", "first"),
        ("assistant", "mcp__nova__count"),
        ("user", '[{"text": "run 1", "type": "text"}]'),
        ("assistant", "One."),
        ("user", "second"),
    ]
    assert (second.text, bench.runs) == ("Two.", ["count"])
    assert [saved.parent_id for saved in sessions.saved.values()] == [None, first.session_id]


async def test_a_session_continues_from_the_given_turn(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions
) -> None:
    given, engine = options(sessions=sessions), make_engine()
    server.reply(text_response("A."), text_response("B."), text_response("C."))
    first = await engine.run("a", given, "sandbox")
    await engine.run("b", given, "sandbox", session_id=first.session_id)
    await engine.run("c", given, "sandbox", session_id=first.session_id)
    assert conversation_of(server) == [("user", "a"), ("assistant", "A."), ("user", "c")]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(({"type": "nonsense"},), id="unknown", marks=pytest.mark.long),
        pytest.param((7, None, ["type"]), id="no objects", marks=pytest.mark.long),
        pytest.param(
            (
                {"type": "user", "uuid": "u", "message": 7},
                {"type": "assistant", "uuid": "v", "message": {"content": 3}},
            ),
            id="no messages",
        ),
    ],
)
async def test_an_unreadable_session_is_replaced_by_one_from_the_ledger(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions, entries: Any
) -> None:
    engine, history = make_engine(), (Message("user", (text_block("a"),)), Message("assistant", (text_block("A."),)))
    server.reply(text_response("A."), text_response("B."))
    first = await engine.run("a", options(sessions=sessions), "sandbox")
    assert first.session_id is not None
    broken = replace(sessions.saved[first.session_id], entries=entries)
    sessions.saved[first.session_id] = broken
    second = await engine.run("b", options(sessions=sessions, history=history), "sandbox", session_id=first.session_id)
    assert (second.text, second.error) == ("B.", None)
    assert second.session_id not in {None, first.session_id}
    assert conversation_of(server) == [("user", "a"), ("assistant", "A."), ("user", "b")]


async def test_a_session_that_differs_from_the_ledger_is_not_resumed(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions
) -> None:
    engine = make_engine()
    history = (
        Message("user", (text_block("a"),)),
        Message("assistant", (text_block("A."),)),
        Message("user", (text_block("to another engine"),)),
        Message("assistant", ({"type": "tool_use", "id": "toolu_x", "name": "look", "input": {"at": 1}},)),
        Message("user", ({"type": "tool_result", "tool_use_id": "toolu_x", "content": [text_block("seen")]},)),
        Message("assistant", (text_block("Looked."),)),
    )
    server.reply(text_response("A."), text_response("B."), text_response("C."))
    first = await engine.run("a", options(sessions=sessions), "sandbox")
    second = await engine.run("b", options(sessions=sessions, history=history), "sandbox", session_id=first.session_id)
    assert conversation_of(server) == [
        ("user", "a"),
        ("assistant", "A."),
        ("user", "to another engine"),
        ("assistant", "mcp__nova__look"),
        ("user", '[{"text": "seen", "type": "text"}]'),
        ("assistant", "Looked."),
        ("user", "b"),
    ]
    # The new session is complete, and equals the ledger from now on.
    history += (Message("user", (text_block("b"),)), *second.messages)
    await engine.run("c", options(sessions=sessions, history=history), "sandbox", session_id=second.session_id)
    assert conversation_of(server)[-3:] == [("user", "b"), ("assistant", "B."), ("user", "c")]
    assert list(sessions.saved.values())[-1].parent_id == second.session_id


async def test_an_aborted_turn_leaves_a_session_that_can_be_resumed(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions
) -> None:
    engine, abort = make_engine(), AbortSignal()
    server.reply(Stream((Part("text", ["Half an ", "answer"]), Part("stall"))), text_response("Whole."))
    callbacks = EngineCallbacks(on_token=lambda text: abort.abort("cancel") if text == "answer" else None)
    first = await engine.run("a", options(sessions=sessions), "sandbox", callbacks=callbacks, abort=abort)
    assert (first.stop_reason, first.text) == ("aborted", "Half an answer")
    second = await engine.run("b", options(sessions=sessions), "sandbox", session_id=first.session_id)
    assert second.text == "Whole."
    assert conversation_of(server) == [("user", "a"), ("assistant", "Half an answer"), ("user", "b")]


async def test_a_requeued_turn_leaves_its_journal_and_no_session(
    make_engine: MakeEngine, server: ModelServer, sessions: Sessions
) -> None:
    async def stop(_: object) -> str:
        return "stop"

    bench = Bench()
    server.reply(tool_response(("mcp__nova__count", {})), text_response("never"))
    given = options(sessions=sessions, mcp_servers=bench.servers())
    callbacks = EngineCallbacks(on_step=stop)  # pyright: ignore[reportArgumentType] - a verdict
    result = await make_engine().run("a", given, "sandbox", callbacks=callbacks)
    assert (result.stop_reason, result.session_id) == ("tool_use", None)
    assert (sessions.saved, len(server.requests)) == ({}, 1)
