"""A turn listener does nothing by default; callbacks and wrappers cost only what they override."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.errors import Outage
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    EngineCallbacks,
    EngineEvent,
    ForwardingListener,
    StepRecord,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.steps import ModelRequest, ToolServerAway

CALL = ToolCall("c1", "send", {}, step=0, sequence=0)
STEP = StepRecord(0, (Message("assistant", (text_block("a"),)),))
PLAIN: dict[str, tuple[Any, ...]] = {
    "on_thinking": (),
    "on_request": (ModelRequest(0, "a", (), {}),),
    "on_provider_wait": (Outage("anthropic", "down"), "a", 1.0),
    "on_token": ("a",),
    "on_reasoning": ("a",),
    "on_restart": (),
    "on_assistant_message": ("a",),
    "on_tool_use": (CALL, "a"),
    "on_tool_progress": (CALL, "a"),
    "on_tool_use_summary": ("a",),
    "on_option_left_out": ("temperature", "note"),
    "on_provider_call": ("WebSearch",),
    "on_event": (EngineEvent("result", {}),),
}
AWAITED: dict[str, tuple[Any, ...]] = {
    "on_tool_calls": (STEP,),
    "on_tool_result": (CALL, "a"),
    "on_step": (STEP,),
    "on_content_refused": ((LeftOut(text_block("a"), "note"),),),
    "on_tool_servers": ((ToolServerAway("a", "gone"),),),
    "take_steering": (),
    "authorize_tool": ("send", {}),
    "may_offer": ("WebSearch",),
    "confirm_run": (),
}


async def _deny(_: str, __: JsonObject) -> ToolAuthorization:
    return ToolAuthorization(allowed=False, reason="no")


def _nested(_: str, __: str) -> TurnListener:
    return TurnListener()


def _ignore(*_: object) -> None:
    return None


@pytest.mark.parametrize("listener", [TurnListener(), EngineCallbacks(), ForwardingListener(TurnListener())])
async def test_default_callbacks_continue_the_turn(listener: TurnListener) -> None:
    for name, given in PLAIN.items():
        assert getattr(listener, name)(*given) is None
    await listener.on_tool_calls(STEP)
    await listener.on_tool_result(CALL, "a")
    assert await listener.on_step(STEP) == "continue"
    assert await listener.take_steering() == ()
    assert (await listener.authorize_tool("send", {})).allowed
    await listener.confirm_run()
    assert listener.can_restart(text=True, reasoning=True)
    assert await listener.subagent("c1", "scout").on_step(STEP) == "continue"


async def test_every_callback_is_called_under_its_own_name() -> None:
    seen: list[str] = []

    def plain(name: str) -> Any:
        def note(*given: object) -> None:
            seen.append(name)

        return note

    def awaited(name: str) -> Any:
        async def note(*given: object) -> Any:
            seen.append(name)

        return note

    callbacks = {**{name: plain(name) for name in PLAIN}, **{name: awaited(name) for name in AWAITED}}
    listener = ForwardingListener(EngineCallbacks(**callbacks, subagent=_nested))
    for name, given in PLAIN.items():
        getattr(listener, name)(*given)
    for name, given in AWAITED.items():
        await getattr(listener, name)(*given)
    assert seen == [*PLAIN, *AWAITED]
    methods = {name for name in vars(TurnListener) if not name.startswith("_")}
    assert methods == {*PLAIN, *AWAITED, "subagent", "can_restart"}


@pytest.mark.parametrize(
    ("given", "text", "reasoning", "may"),
    [
        ({}, True, True, True),
        ({"on_token"}, False, True, True),
        ({"on_token"}, True, False, False),
        ({"on_reasoning"}, True, False, True),
        ({"on_reasoning"}, True, True, False),
        ({"on_token", "on_reasoning", "on_restart"}, True, True, True),
    ],
)
def test_a_response_is_not_retried_if_its_partial_text_cannot_be_voided(
    given: set[str], text: bool, reasoning: bool, may: bool
) -> None:
    callbacks: dict[str, Any] = dict.fromkeys(given, _ignore)
    listener = ForwardingListener(EngineCallbacks(**callbacks))
    assert listener.can_restart(text=text, reasoning=reasoning) is may


async def test_a_subagent_without_its_own_listener_is_authorized_like_the_turn() -> None:
    nested = EngineCallbacks(authorize_tool=_deny).subagent("c1", "scout")
    assert not (await nested.authorize_tool("send", {})).allowed


def test_a_wrapper_does_not_intercept_callbacks_that_it_does_not_override() -> None:
    class UpperCasing(ForwardingListener):
        def on_token(self, text: str) -> None:
            self._to.on_token(text.upper())

    seen: list[str] = []
    inner = EngineCallbacks(on_token=seen.append, on_reasoning=seen.append)
    wrapped = ForwardingListener(UpperCasing(ForwardingListener(inner)))
    assert wrapped.on_reasoning == seen.append
    wrapped.on_token("a")
    assert seen == ["A"]
