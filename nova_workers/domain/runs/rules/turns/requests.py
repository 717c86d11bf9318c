"""Records what the model calls of a turn were asked with, for the statements that commit their steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from nova_workers.base.clock import Clock
from nova_workers.base.vocabulary import RequestPartKind
from nova_workers.contracts.content import JsonObject, storable, storable_json
from nova_workers.contracts.steps import ModelRequest, StepRecord
from nova_workers.domain.prompts.rules import sections_of
from nova_workers.domain.runs.sql.requests import REMEMBERED_S, RecordedCall, RequestPart

MAX_SECTION_CHARS: Final = 262_144
"""A longer section is stored without its rest."""
MAX_TOOLS_BYTES: Final = 1_048_576
"""Of a longer list of tools, as JSON, only the names are stored."""
_HASH_BYTES: Final = 16
_REMEMBERED: Final = 50_000
"""Parts that a process remembers; with more it forgets all, and writes them once more."""


class WrittenParts:
    """The parts that this process wrote recently. One object serves all turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[tuple[str, str], float] = {}

    def lacks(self, tenant_id: str, parts: Iterable[RequestPart]) -> tuple[RequestPart, ...]:
        """Return those of a tenant's parts that have to be written."""
        now_s = self._clock.monotonic_s()
        return tuple(part for part in parts if self._until_s.get((tenant_id, part.id), 0.0) <= now_s)

    def add(self, tenant_id: str, parts: Iterable[RequestPart], *, since_s: float) -> None:
        """Remember parts that were written.

        Args:
            tenant_id: Whose parts they are.
            parts: Those that a statement wrote.
            since_s: When their statement began, on the monotonic clock.
        """
        if len(self._until_s) >= _REMEMBERED:
            self._until_s.clear()
        self._until_s |= {(tenant_id, part.id): since_s + REMEMBERED_S for part in parts}


class _Asked(NamedTuple):
    request: ModelRequest
    at: datetime
    parent_turn_id: str | None


class CallRecorder:
    """Knows what the model calls of one attempt were asked with, until it is recorded."""

    def __init__(self, tenant_id: str, written: WrittenParts, clock: Clock) -> None:
        self._tenant_id = tenant_id
        self._written = written
        self._clock = clock
        self._asked: _Asked | None = None
        self._recorded: int | None = None
        """The step whose call was recorded last."""
        self._began_s = 0.0
        self._known: tuple[ModelRequest, tuple[RequestPart, ...]] | None = None
        """The request of which the parts were made last."""

    def ask(self, request: ModelRequest, *, parent_turn_id: str | None) -> None:
        """Note that the model is asked."""
        self._asked = _Asked(request, self._clock.now(), parent_turn_id)
        self._recorded = None

    def of_step(self, step: StepRecord) -> RecordedCall | None:
        """Return the model call of a step that is committed; None if an earlier statement recorded it."""
        if self._recorded == step.index:
            return None
        asked = self._asked
        if asked is None or asked.request.step != step.index:
            # The engine does not make its requests, or the response is of an earlier attempt.
            return RecordedCall(step.index, None, None, None, step.first_token_ms)
        return self._record(asked, step.first_token_ms)

    def at_end(self, step: StepRecord | None) -> RecordedCall | None:
        """Return the model call that a run ends with: of its last step, or one that brought no response."""
        asked = self._asked
        if asked is not None and (step is None or asked.request.step > step.index):
            return None if self._recorded == asked.request.step else self._record(asked, None)
        return None if step is None else self.of_step(step)

    def note_commit(self, call: RecordedCall | None) -> None:
        """Note that a call was recorded."""
        if call is not None:
            self._recorded = call.step
            self._written.add(self._tenant_id, call.parts, since_s=self._began_s)

    def _record(self, asked: _Asked, first_token_ms: int | None) -> RecordedCall:
        self._began_s = self._clock.monotonic_s()
        form, *others = self._parts(asked.request)
        return RecordedCall(
            asked.request.step,
            form.id,
            asked.parent_turn_id,
            asked.at,
            first_token_ms,
            self._written.lacks(self._tenant_id, (form, *others)),
        )

    def _parts(self, request: ModelRequest) -> tuple[RequestPart, ...]:
        if self._known is not None:
            known, parts = self._known
            # The requests of a turn mostly have the same tools and prompt, as the same objects.
            same = known.tools is request.tools and known.system == request.system
            if same and known.parameters == request.parameters:
                return parts
        parts = parts_of(request)
        self._known = request, parts
        return parts


def parts_of(request: ModelRequest) -> tuple[RequestPart, ...]:
    """Return the parts of a request, its form first. Pure: equal requests have equal parts."""
    sections = [(tag, _section(text)) for tag, text in sections_of(request.system)]
    tools = _tools(request.tools) if request.tools else None
    others = [part for _, part in sections] + ([] if tools is None else [tools])
    parts = {part.id: part for part in others}
    content: JsonObject = {
        "sections": [[tag, part.id] for tag, part in sections],
        "tools": None if tools is None else tools.id,
        "parameters": storable_json(request.parameters),
    }
    form = _part("form", content, orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
    return (RequestPart(form.id, "form", content, tuple(parts)), *parts.values())


def _section(text: str) -> RequestPart:
    text = storable(text)
    if len(text) > MAX_SECTION_CHARS:
        text = f"{text[:MAX_SECTION_CHARS]}\n[… {len(text) - MAX_SECTION_CHARS:,} characters are not stored …]"
    return _part("section", text, text.encode())


def _tools(tools: Sequence[JsonObject]) -> RequestPart:
    content: Any = list(tools)
    try:
        encoded = orjson.dumps(content)
    except TypeError:
        encoded = b"\\u0000"
    if b"\\u0000" in encoded:
        content = storable_json(content)
        encoded = orjson.dumps(content)
    if len(encoded) > MAX_TOOLS_BYTES:
        content = [{"name": tool.get("name")} for tool in content]
        encoded = orjson.dumps(content)
    return _part("tools", content, encoded)


def _part(kind: RequestPartKind, content: Any, encoded: bytes) -> RequestPart:
    digest = hashlib.blake2b(encoded, digest_size=_HASH_BYTES, person=kind.encode())
    return RequestPart(digest.hexdigest(), kind, content)
