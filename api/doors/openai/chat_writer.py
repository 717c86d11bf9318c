"""The chunks of a streamed chat completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState

from ..feed import Change, Delta, Done, Ended, Paused, Started, Voided
from ..items import Item, MessageItem, QuestionItem, ToolCallItem
from ..service import Door
from .chat import (
    BETWEEN,
    CompletionId,
    FinishReason,
    Part,
    call_document,
    failure_document,
    finish_of,
    question_text,
    usage_of,
)
from .chat_history import ChatDigest
from .parts import is_asked_again

_LAST: Final = b"data: [DONE]\n\n"
_WITHDRAWN: Final = {
    "error": {
        "message": "The answer began anew after a part of it was sent: its worker was lost, or its model failed. Get "
        "it whole by the id of this completion, or by the same request with the same Idempotency-Key.",
        "type": "server_error",
        "param": None,
        "code": "answer_withdrawn",
    }
}


class ChatWriter:
    """Writes one completion."""

    def __init__(self, door: Door, completion: CompletionId, chat: ChatDigest, *, includes_usage: bool) -> None:
        """Take the completion, and the chat that it answers."""
        self.is_over = False
        self._door = door
        self._completion = completion
        self._chat = chat
        self._includes_usage = includes_usage
        self._agent_id = ""
        self._text: list[str] = []
        """All that was sent."""
        self._texts: dict[str, str] = {}
        """What was sent of messages that are not done."""
        self._thoughts: set[str] = set()
        """Reasoning that began."""
        self._again: dict[str, str] = {}
        """What was sent of a message that begins anew: it must come again."""
        self._calls: list[ToolCallItem] = []
        self._questions: list[QuestionItem] = []
        self._last_step: int | None = None
        self._frames: list[bytes] = []

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the first chunk."""
        self._agent_id = run.agent_id
        self._add({"role": "assistant", "content": "", "refusal": None})
        return self._taken()

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return the chunks of changes."""
        for change in changes:
            if self._is_behind(change):
                await self._finish()
            else:
                await self._take(change)
            if self.is_over:
                break
        return self._taken()

    async def _take(self, change: Change) -> None:
        match change:
            case Started() if change.step >= self._completion.first_step:
                self._start(change)
            case Delta(item_id, _, text) if item_id in self._texts:
                self._say(item_id, text)
            case Delta(item_id, _, text) if item_id in self._thoughts:
                self._add({"reasoning_content": text})
            case Voided(item_id) if item_id in self._texts:
                self._again[item_id] = self._texts.pop(item_id) + self._again.pop(item_id, "")
            case Done(item) if item.step >= self._completion.first_step or is_asked_again(
                item, self._completion.first_step
            ):
                self._done(item)
            case Paused("waiting") | Ended():
                if isinstance(change, Ended) or self._last_step is not None:
                    await self._finish()
            case _:
                pass

    def _start(self, change: Started) -> None:
        if change.kind == "message":
            self._texts.setdefault(change.item_id, "")
        elif change.kind == "reasoning":
            self._thoughts.add(change.item_id)

    def _done(self, item: Item) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._texts.pop(item.id, None)
                if self._again.pop(item.id, ""):
                    self._withdraw()
            case ToolCallItem(for_caller=True):
                self._last_step = item.step
                self._add({"tool_calls": [{"index": len(self._calls), **call_document(item)}]})
                self._calls.append(item)
            case QuestionItem() if all(item.id != other.id for other in self._questions):
                self._last_step = item.step
                self._questions.append(item)
            case _:
                pass

    def _is_behind(self, change: Change) -> bool:
        """Return whether a change comes after what ends the completion."""
        if self._last_step is None:
            return False
        match change:
            case Started(step=step):
                return step > self._last_step
            case Done(item):
                return item.step > self._last_step
            case _:
                return False

    def _say(self, item_id: str, text: str) -> None:
        expected = self._again.get(item_id, "")
        if expected:
            known = min(len(expected), len(text))
            if text[:known] != expected[:known]:
                self._withdraw()
                return
            self._again[item_id] = expected[known:]
            self._texts[item_id] += text[:known]
            text = text[known:]
        if not text:
            return
        between = BETWEEN if self._text and not self._texts[item_id] else ""
        self._texts[item_id] += text
        self._write_text(between + text)

    def _write_text(self, text: str) -> None:
        self._text.append(text)
        self._add({"content": text})

    def _withdraw(self) -> None:
        self._frames.append(b"data: %s\n\n" % orjson.dumps(_WITHDRAWN))
        self._end()

    async def _finish(self) -> None:
        """Write the end, as the run has it now."""
        run = await self._door.run(self._completion.run_id)
        if any(self._again.values()) and run.status != "canceled":
            self._withdraw()
            return
        if self._last_step is None and run.status == "failed":
            self._frames.append(b"data: %s\n\n" % orjson.dumps(failure_document(run)))
            self._end()
            return
        if not self._calls:
            for question in self._questions:
                text = question_text(question)
                self._write_text(BETWEEN + text if self._text else text)
        part = Part((), (), self._calls, self._questions, self._last_step)
        finish = finish_of(run, part) or "stop"
        if finish != "tool_calls":
            rest = CompletionId(run.id, 0 if self._last_step is None else self._last_step + 1)
            await self._door.note_place(self._chat.with_answer("".join(self._text)), str(rest))
        self._add({}, finish)
        if self._includes_usage:
            self._chunk([], await usage_of(self._door, run, self._completion, self._last_step))
        self._end()

    def _end(self) -> None:
        self._frames.append(_LAST)
        self.is_over = True

    def _add(self, delta: JsonObject, finish: FinishReason | None = None) -> None:
        self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], None)

    def _chunk(self, choices: list[Any], usage: JsonObject | None) -> None:
        chunk: JsonObject = {
            "id": str(self._completion),
            "object": "chat.completion.chunk",
            "created": self._completion.created,
            "model": self._agent_id,
            "choices": choices,
        }
        if self._includes_usage:
            chunk["usage"] = usage
        self._frames.append(b"data: %s\n\n" % orjson.dumps(chunk))

    def _taken(self) -> bytes:
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames
