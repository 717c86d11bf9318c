"""Cuts the messages of an imported conversation into turns, as the ledger keeps them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import MessageKind, Role
from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.native import CODE_CALLS
from nova_workers.contracts.usage import CHARS_PER_TOKEN
from nova_workers.domain.threads.rules.sizes import content_chars
from nova_workers.domain.threads.sql.importing import ImportedCall, ImportedMessage, ImportedTurn


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message whose form was checked: each call has its result in the message after it."""

    role: Role
    content: Sequence[ContentBlock]
    said_at: datetime


def turns_of(messages: Sequence[SaidMessage]) -> list[ImportedTurn]:
    """Return the turns of a conversation, each beginning with a message of the user.

    What the user says together with results of tools joined the turn, like a message that steers. A further message of
    the assistant is a further step.

    Args:
        messages: Oldest first; the first is the user's.
    """
    cut: list[_Turn] = []
    for message in messages:
        results = [block for block in message.content if block.get("type") == "tool_result"]
        if message.role == "user" and not results:
            cut.append(_Turn(message))
        elif message.role == "user":
            cut[-1].take_results(message, results)
        else:
            cut[-1].take_response(message)
    tokens = 0
    turns: list[ImportedTurn] = []
    for turn in cut:
        tokens += turn.chars // CHARS_PER_TOKEN
        turns.append(turn.ended(len(turns), context_tokens=tokens))
    return turns


def _imported(block: ContentBlock) -> ContentBlock:
    """Return a block under a name that is no step of durable code: its results would be taken for what that did."""
    if block.get("type") == "tool_use" and block["name"] in CODE_CALLS:
        return {**block, "name": f"imported_{block['name']}"}
    return block


class _Turn:
    def __init__(self, query: SaidMessage) -> None:
        self.chars = 0
        self._began_at = self._ended_at = query.said_at
        self._steps = 0
        self._messages: list[ImportedMessage] = []
        self._calls: dict[str, ImportedCall] = {}
        self._add("query", query, query.content)

    def take_response(self, message: SaidMessage) -> None:
        message = replace(message, content=[_imported(block) for block in message.content])
        self._steps += 1
        self._add("response", message, message.content)
        for block in message.content:
            if block.get("type") == "tool_use":
                self._calls[block["id"]] = ImportedCall(
                    id=new_id("tlc"),
                    call_id=block["id"],
                    step=self._steps - 1,
                    sequence=len(self._calls),
                    tool_name=block["name"],
                    params=block["input"],
                    started_at=message.said_at,
                )

    def take_results(self, message: SaidMessage, results: Sequence[ContentBlock]) -> None:
        self._add("tool_results", message, results)
        for block in results:
            self._calls[block["tool_use_id"]].end(_blocks(block), message.said_at, failed=bool(block.get("is_error")))
        joined = message.content[len(results) :]
        if joined:
            self._add("steering", message, joined)

    def ended(self, depth: int, *, context_tokens: int) -> ImportedTurn:
        return ImportedTurn(
            id=new_id("turn"),
            depth=depth,
            steps=self._steps,
            context_tokens=context_tokens,
            started_at=self._began_at,
            completed_at=self._ended_at,
            messages=self._messages,
            calls=list(self._calls.values()),
        )

    def _add(self, kind: MessageKind, message: SaidMessage, content: Sequence[ContentBlock]) -> None:
        self.chars += content_chars(content)
        self._ended_at = message.said_at
        self._messages.append(
            ImportedMessage(
                id=new_id("msg"),
                seq=len(self._messages),
                step=None if kind == "query" else self._steps - 1,
                kind=kind,
                role=message.role,
                content=list(content),
                created_at=message.said_at,
            )
        )


def _blocks(result: ContentBlock) -> list[ContentBlock]:
    content = result.get("content")
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return content or []
