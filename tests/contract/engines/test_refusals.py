"""The provider refuses the same request twice: the newest result or attachment goes, and the turn continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.engine import EngineCallbacks
from nova_workers.contracts.refusals import LeftOut, with_notes
from tests.contract.engines.stage import Answer, Stage, WireStage
from tests.requirements import proves
from tests.support.servers.model_server import Status

Json = dict[str, Any]
BAD, GOOD = "shibboleth", "harmless"


def _call(number: int) -> Message:
    return Message("assistant", ({"type": "tool_use", "id": f"toolu_h{number}", "name": "look", "input": {}},))


def _result(number: int, text: str) -> Message:
    block: ContentBlock = {"type": "tool_result", "tool_use_id": f"toolu_h{number}", "content": [text_block(text)]}
    return Message("user", (block,))


HISTORY = (
    Message("user", (text_block("look twice"),)),
    _call(1),
    _result(1, BAD),
    _call(2),
    _result(2, GOOD),
    Message("assistant", (text_block("I did."),)),
)


def _has_bad(_: Mapping[str, str], body: Json) -> bool:
    return BAD in json.dumps(body)


def _wire(stage: Stage) -> WireStage:
    if not isinstance(stage, WireStage):
        pytest.skip("it has no provider")
    return stage


class _LeftOut:
    def __init__(self) -> None:
        self.all: list[LeftOut] = []

    def callbacks(self) -> EngineCallbacks:
        return EngineCallbacks(on_content_refused=self._take)

    async def _take(self, left_out: tuple[LeftOut, ...]) -> None:
        self.all += left_out


@proves("engine.refused-twice")
async def test_only_the_result_that_is_refused_is_left_out(stage: Stage) -> None:
    stage, told = _wire(stage), _LeftOut()
    options = stage.options([Answer("Ok")], history=HISTORY)
    stage.server.reply_when(_has_bad, Status(400, "invalid_request_error", "That is not possible"))
    result = await stage.engine.run("and now?", options, "sandbox", callbacks=told.callbacks())
    assert (result.text, result.error) == ("Ok", None)
    # The whole request twice, without the newest result, and without the one before it. Some programs send a request
    # that was refused once more by themselves.
    refused = [BAD in json.dumps(body) for body in stage.server.requests]
    assert (refused.count(True) in (3, 6), refused[-1]) == (True, False)
    (left_out,) = told.all
    assert left_out.key == "call:toolu_h1"
    assert "the result of look" in left_out.note
    accepted = json.dumps(stage.server.requests[-1])
    assert GOOD in accepted
    assert "It was the result of look" in accepted
    # A later turn has the note from the start.
    told.all.clear()
    later = with_notes(HISTORY, {left_out.key: left_out.note})
    options = stage.options([Answer("Fine")], history=later)
    result = await stage.engine.run("still?", options, "sandbox", callbacks=told.callbacks())
    assert (result.text, told.all, len(stage.server.requests)) == ("Fine", [], len(refused) + 1)


@proves("engine.refused-twice")
async def test_nothing_is_left_out_where_that_does_not_help(stage: Stage) -> None:
    stage, told = _wire(stage), _LeftOut()
    options = stage.options([Answer("Ok")], history=HISTORY)
    stage.server.reply_when(lambda _, __: True, Status(400, "invalid_request_error", "That is not possible"))
    result = await stage.engine.run("and now?", options, "sandbox", callbacks=told.callbacks())
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, told.all) == ("model_error", False, [])
    assert "That is not possible" in result.error.message
    assert len(stage.server.requests) == 5


@proves("engine.refused-twice")
async def test_the_words_of_a_person_stay(stage: Stage) -> None:
    stage, told = _wire(stage), _LeftOut()
    options = stage.options([Answer("Ok")])
    stage.server.reply_when(_has_bad, Status(400, "invalid_request_error", "That is not possible"))
    result = await stage.engine.run(BAD, options, "sandbox", callbacks=told.callbacks())
    assert result.error is not None
    assert (told.all, len(stage.server.requests)) == ([], 1)
