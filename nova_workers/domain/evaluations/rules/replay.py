"""What answers the tool calls of a trial: recorded results, else a rule. A tool runs only if it is named as live.

The decision is that of `TurnJournal.authorize_tool`, which each engine asks before each call. An engine that cannot
give the model a recorded result refuses the call, so that no tool runs because of an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from nova_workers.contracts.content import ContentBlock, JsonObject, storable_json, text_block
from nova_workers.contracts.http.datasets import RecordedCall
from nova_workers.contracts.http.evaluations import ToolReplay
from nova_workers.contracts.steps import ToolAuthorization, ToolCall
from nova_workers.domain.datasets.rules.redaction import ExampleRedactor
from nova_workers.domain.evaluations.sql import ReplaySource

REPLAYING_ENGINES: Final = frozenset({"anthropic", "openai", "scripted"})
"""Engines on our turn loop, which gives the model recorded results. Others run tools of their own."""

_NOTHING: Final = ToolReplay()


class Replay:
    """Decides on the calls of one run of an evaluation.

    Equal calls get the recorded results in their order; when there are no more, the last one again.
    """

    def __init__(self, source: ReplaySource | None) -> None:
        """Take what the example has; None, since it was deleted, answers no call."""
        self._rules = _NOTHING if source is None else source.tools
        self._redactor = None if source is None else ExampleRedactor(source.redact)
        self._recorded: dict[tuple[str, bytes], list[RecordedCall]] = {}
        self._given: dict[tuple[str, bytes], int] = {}
        for call in () if source is None else source.calls:
            self._recorded.setdefault(_key(call.tool, call.arguments), []).append(call)

    def remember(self, calls: Iterable[ToolCall]) -> None:
        """Count the calls of earlier attempts, so that this one goes on with the results after them."""
        for call in calls:
            if call.result is not None:
                self._next(self._key(call.tool_name, call.params))

    def is_live(self, tool: str) -> bool:
        """Return whether calls of a tool run as usual."""
        return tool in self._rules.live

    def decide(self, tool: str, params: Mapping[str, object]) -> ToolAuthorization | None:
        """Return the answer to a call; None if the tool runs as usual."""
        if self.is_live(tool):
            return None
        recorded = self._next(self._key(tool, dict(params)))
        if recorded is not None:
            return ToolAuthorization(
                False, _unsupported(tool), result=_blocks(recorded.result), is_error=recorded.is_error
            )
        if tool in self._rules.stand_ins:
            return ToolAuthorization(False, _unsupported(tool), result=_blocks(self._rules.stand_ins[tool]))
        return ToolAuthorization(
            False,
            f"This is an evaluation, which replays recorded tool calls, and no call of {tool!r} with these arguments "
            "was recorded. Answer without it",
            if_read_only=self._rules.missing == "read_only",
        )

    def _next(self, key: tuple[str, bytes]) -> RecordedCall | None:
        calls = self._recorded.get(key)
        if calls is None:
            return None
        place = self._given.get(key, 0)
        self._given[key] = place + 1
        return calls[min(place, len(calls) - 1)]

    def _key(self, tool: str, params: JsonObject) -> tuple[str, bytes]:
        # What the dataset's rules took out of the recorded call is taken out of this one too.
        clean = params if self._redactor is None else self._redactor.json(params)
        return _key(tool, clean)


def _key(tool: str, arguments: JsonObject) -> tuple[str, bytes]:
    return tool, orjson.dumps(storable_json(arguments), option=orjson.OPT_SORT_KEYS)


def _blocks(result: str | list[ContentBlock]) -> tuple[ContentBlock, ...]:
    if isinstance(result, str):
        return (text_block(result),) if result else ()
    return tuple(result)


def _unsupported(tool: str) -> str:
    return f"This is an evaluation, and this engine cannot replay the recorded result of {tool!r}"
