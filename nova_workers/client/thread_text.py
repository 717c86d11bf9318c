"""A conversation as one Markdown text, for files and for people."""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime
from typing import Final

from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import ThreadView

_PAGE: Final = 200
_PERSON: Final = "Person"


async def markdown_of_thread(client: NovaClient, thread: ThreadView) -> AsyncGenerator[str]:
    """Yield a conversation, oldest message first, piece by piece: what was said, tool calls, and their results.

    Summaries and thinking are left out; of images and documents it has the names.

    Raises:
        NovaError: As `client.threads.messages`.
    """
    yield f"# {thread.title or 'Conversation'}\n\n"
    yield f"Agent {thread.agent_id}, conversation {thread.id}, begun {_time(thread.created_at)}.\n"
    speaker = ""
    async for message in iterate(client.threads.messages, thread.id, limit=_PAGE):
        said = "" if message.kind == "summary" else "\n\n".join(_pieces(message.content))
        if not said:
            continue
        # Results of tools are messages of the user's role, but belong to the agent's answer.
        by = thread.agent_id if message.kind in ("response", "tool_results") else _PERSON
        if by == _PERSON or by != speaker:
            yield f"\n## {by}, {_time(message.created_at)}\n"
        speaker = by
        yield f"\n{said}\n"


def _pieces(content: Sequence[ContentBlock]) -> Iterator[str]:
    for block in content:
        match block.get("type"):
            case "text" if text := str(block.get("text") or "").strip():
                yield text
            case "tool_use":
                arguments = json.dumps(block.get("input"), indent=2, ensure_ascii=False)
                yield f"**Tool `{block.get('name')}`**\n\n{_fenced(arguments, 'json')}"
            case "tool_result":
                title = "Error" if block.get("is_error") else "Result"
                yield f"**{title}**\n\n{_fenced(_result(block.get('content')))}"
            case "image" | "document" as kind:
                yield f"*{kind}: {block['title']}*" if block.get("title") else f"*{kind}*"
            case _:
                pass


def _result(content: object) -> str:
    if not isinstance(content, list):
        return str(content or "")
    parts: Sequence[ContentBlock] = content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _fenced(text: str, language: str = "") -> str:
    """Return a block of code, with a fence that is longer than any within it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
