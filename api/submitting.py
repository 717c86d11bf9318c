"""Builds a submission from a request's body: the message's form and bounds, the idempotency key and the body's hash."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import orjson
from fastapi import Header

from nova_workers.base.errors import InvalidInput
from nova_workers.base.media import MEDIA_TYPES, media_problem, with_scaled_images
from nova_workers.contracts.bodies import Body
from nova_workers.contracts.content import ContentBlock, storable_json, text_block
from nova_workers.contracts.http.wire import (
    IDEMPOTENCY_KEY_PATTERN,
    MAX_START_DAYS,
    RunCreate,
    RunView,
    StatelessRunCreate,
)
from nova_workers.contracts.runs import Accepted, RequestKey, Submission
from nova_workers.contracts.waits import ToolResult
from nova_workers.domain.runs.rules.waiting import GivenResult
from nova_workers.domain.runs.sql.reads import shown_options

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=IDEMPOTENCY_KEY_PATTERN,
        description="Names this request for 24 hours: the same key and body again return what the first one made.",
    ),
]

_DEFAULT_AGENT = "nova"
_SOURCES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    # Source type → the fields that it needs, by block type.
    "image": {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)},
    "document": {
        "base64": ("media_type", "data"),
        "url": ("url",),
        "file": ("file_id",),
        "text": ("media_type", "data"),
        "content": ("content",),
    },
}

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("type", "text"),
    "image": ("type", "source"),
    "document": ("type", "source", "title", "context", "citations"),
}
"""The fields of a block. Cache marks are set by the engine: a provider accepts four of them."""


def to_submission(
    body: RunCreate,
    message: str | Sequence[ContentBlock],
    *,
    tenant_id: str,
    created_by: str,
    thread_id: str | None,
    request: RequestKey | None,
    max_message_chars: int,
    traceparent: str | None,
    now: datetime,
) -> Submission:
    """Return the submission for a request, whose message is `scaled`.

    Raises:
        InvalidInput: The message has no content, a block of another kind or form, or too many characters; or it
            starts too far ahead.
    """
    if body.start_at is not None and body.start_at > now + timedelta(days=MAX_START_DAYS):
        raise InvalidInput(
            f"start_at: {body.start_at.isoformat()} is more than {MAX_START_DAYS} days ahead. Make a trigger for it.",
            field="start_at",
        )
    agent_id, ephemeral = None, False
    if isinstance(body, StatelessRunCreate):
        if body.thread_id is not None and body.agent_id is not None:
            raise InvalidInput(
                "Give thread_id, or agent_id for a new thread, but not both: a thread has its agent.", field="agent_id"
            )
        thread_id = body.thread_id
        agent_id = (body.agent_id or _DEFAULT_AGENT) if thread_id is None else None
        ephemeral = body.ephemeral
        if ephemeral and thread_id is not None:
            raise InvalidInput(
                "ephemeral is for a new thread: one that exists keeps its kind. Leave out thread_id, or ephemeral.",
                field="ephemeral",
            )
    return Submission(
        tenant_id=tenant_id,
        created_by=created_by,
        content=content_of(message, max_chars=max_message_chars),
        thread_id=thread_id,
        agent_id=agent_id,
        ephemeral=ephemeral,
        on_busy=body.on_busy,
        queue=body.queue,
        model=body.model,
        max_turns=body.max_turns,
        options=body.options(),
        priority=body.priority,
        metadata=body.metadata,
        request=request,
        traceparent=traceparent,
        # As it is stored, and shown from then on.
        start_at=None if body.start_at is None else body.start_at.astimezone(UTC),
        collect_ms=body.collect_ms if body.on_busy == "collect" else None,
    )


async def scaled(message: str | Sequence[ContentBlock]) -> str | Sequence[ContentBlock]:
    """Return a message with smaller images instead of those that providers do not take in every conversation."""
    return message if isinstance(message, str) else await with_scaled_images(message)


def content_of(message: str | Sequence[ContentBlock], *, max_chars: int) -> tuple[ContentBlock, ...]:
    """Return a message as content blocks.

    Raises:
        InvalidInput: It has no content, a block of another kind or form, or too many characters; names the field.
    """
    blocks = (text_block(message),) if isinstance(message, str) else tuple(message)
    placed = [(None if isinstance(message, str) else index, block) for index, block in enumerate(blocks)]
    checked_blocks(placed, "message", max_chars=max_chars)
    return blocks


def checked_blocks(placed: Sequence[tuple[int | None, ContentBlock]], field: str, *, max_chars: int | None) -> None:
    """Check text, images and documents.

    Args:
        placed: Each block with its place; None if it is all that the field has.
        field: Where they are.
        max_chars: Most characters of text.

    Raises:
        InvalidInput: A block of another kind or form, or too many characters; names the field.
    """
    chars = 0
    for index, block in placed:
        where = field if index is None else f"{field}.{index}"
        if block.get("type") == "text":
            chars += _check_text(block, where)
        else:
            _check_source(block, where)
    if max_chars is not None and chars > max_chars:
        raise InvalidInput(
            f"{'The message' if field == 'message' else field} has {chars:,} characters of text; at most "
            f"{max_chars:,} are taken.",
            field=field,
            max_chars=max_chars,
        )


async def given_results(results: Sequence[ToolResult], *, max_chars: int) -> list[GivenResult]:
    """Return the results of calls that the caller of a run executed, with smaller images.

    Raises:
        InvalidInput: A content has a block of another kind or form, or too many characters, or a call has two results.
    """
    given = [await _given(result, f"results.{index}", max_chars) for index, result in enumerate(results)]
    _check_once(results)
    return given


async def _given(result: ToolResult, field: str, max_chars: int) -> GivenResult:
    content = result.content
    if isinstance(content, str):
        blocks = [text_block(content)] if content.strip() else []
    else:
        blocks = [block for block in await scaled(content) if not isinstance(block, str)]
    placed = [(None if isinstance(content, str) else index, block) for index, block in enumerate(blocks)]
    checked_blocks(placed, f"{field}.content", max_chars=max_chars)
    return GivenResult(result.tool_call_id, storable_json(blocks), result.is_error)


def _check_once(results: Sequence[ToolResult]) -> None:
    seen: dict[str, int] = {}
    for index, result in enumerate(results):
        first = seen.setdefault(result.tool_call_id, index)
        if first != index:
            field = f"results.{index}.tool_call_id"
            raise InvalidInput(f"{field}: {result.tool_call_id!r} has a result in results.{first} too.", field=field)


def accepted_view(accepted: Accepted, submission: Submission) -> RunView:
    """Return an accepted run without a further query."""
    return RunView(
        id=accepted.run_id,
        thread_id=accepted.thread_id,
        agent_id=accepted.agent_id,
        status="queued" if accepted.start_at is None else "scheduled",
        queue=submission.queue,
        on_busy=submission.on_busy,
        source=submission.source,
        message=list(submission.content),
        model=submission.model,
        max_turns=submission.max_turns,
        **shown_options(None if submission.options is None else submission.options.stored()),
        priority=submission.priority,
        trigger_id=submission.trigger_id,
        metadata=dict(submission.metadata),
        start_at=accepted.start_at or submission.start_at,
        attempt=0,
        created_at=accepted.created_at,
    )


def _check_text(block: ContentBlock, field: str) -> int:
    text = block.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{field} holds no text: a model refuses a message that is empty or blank.", field=field)
    check_fields(block, _FIELDS["text"], field)
    return len(text)


def _check_source(block: ContentBlock, field: str) -> None:
    kind = block.get("type")
    sources = _SOURCES.get(kind) if isinstance(kind, str) else None
    if sources is None:
        raise InvalidInput(
            f"{field} has the type {_quote(kind)}; a message takes 'text', 'image' and 'document' blocks.",
            field=f"{field}.type",
        )
    source: Any = block.get("source")
    needed = sources.get(source["type"]) if _has_type(source) else None
    if needed is None:
        raise InvalidInput(
            f"{field}.source must be an object whose type is one of {', '.join(map(repr, sources))}.",
            field=f"{field}.source",
        )
    for missing in _missing(source, needed):
        raise InvalidInput(f"{field}.source lacks {missing!r}.", field=f"{field}.source.{missing}")
    check_fields(block, _FIELDS[str(kind)], field)
    check_fields(source, ("type", *needed), f"{field}.source")
    _check_values(source, needed, str(kind), f"{field}.source")


def check_fields(given: Mapping[str, Any], known: Sequence[str], field: str) -> None:
    """Refuse what the provider would refuse with every later request of the thread.

    Raises:
        InvalidInput: The block has a field that is not `known`.
    """
    for name in given:
        if name not in known:
            raise InvalidInput(
                f"{field} has the field {_quote(name)}; it takes {', '.join(map(repr, known))}.",
                field=f"{field}.{name}",
            )


def _check_values(source: Mapping[str, Any], needed: Sequence[str], kind: str, field: str) -> None:
    for name in needed:
        if name != "content" and not isinstance(source[name], str):
            raise InvalidInput(f"{field}.{name} must be a string.", field=f"{field}.{name}")
    match source["type"]:
        case "base64":
            _check_media(source["media_type"], source["data"], kind, field)
        case "url" if not source["url"].startswith(("http://", "https://")):
            raise InvalidInput(
                f"{field}.url is {_quote(source['url'])}; it must begin with https:// or http://.", field=f"{field}.url"
            )
        case "text" if source["media_type"] != "text/plain":
            raise InvalidInput(
                f"{field}.media_type is {_quote(source['media_type'])}; a document in text is 'text/plain'.",
                field=f"{field}.media_type",
            )
        case "content":
            _check_inner(source["content"], f"{field}.content")
        case _:
            pass


def _check_media(media_type: str, data: str, kind: str, field: str) -> None:
    allowed = [each for each in MEDIA_TYPES if each.startswith("image/") == (kind == "image")]
    if media_type not in allowed:
        raise InvalidInput(
            f"{field}.media_type is {_quote(media_type)}; a block of type {kind!r} takes {', '.join(allowed)}.",
            field=f"{field}.media_type",
        )
    problem = media_problem(media_type, data)
    if problem is not None:
        raise InvalidInput(f"{field}.data {problem}.", field=f"{field}.data")


def _check_inner(content: Any, field: str) -> None:
    """Check the content of a document: text, or text and images."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise InvalidInput(f"{field} must be a text, or a list of text and image blocks.", field=field)
    for index, block in enumerate(content):
        if not isinstance(block, dict) or block.get("type") not in ("text", "image"):
            raise InvalidInput(f"{field}.{index} must be a block of type 'text' or 'image'.", field=f"{field}.{index}")
        if block["type"] == "text":
            _check_text(block, f"{field}.{index}")
        else:
            _check_source(block, f"{field}.{index}")


def _has_type(source: object) -> bool:
    return isinstance(source, dict) and isinstance(source.get("type"), str)


def _missing(source: Any, needed: Sequence[str]) -> Iterator[str]:
    return (name for name in needed if not source.get(name))


def _quote(value: object) -> str:
    return repr(value)[:80]


def request_key(key: str | None, path: str, body: Body | None, *, ttl_s: float) -> RequestKey | None:
    """Return the idempotency key of a request with the hash of what is requested; None without a key."""
    return None if key is None else RequestKey(key, hash_of(path, body), ttl_s)


def hash_of(path: str, body: Body | None) -> bytes:
    """Hash the meaning of a body, not its spelling. Defaults are left out: a new field with one changes no hash.

    An item of a batch has the hash of the same single message.
    """
    given = {} if body is None else body.model_dump(exclude_defaults=True, exclude={"idempotency_key"})
    if isinstance(body, StatelessRunCreate) and body.agent_id == _DEFAULT_AGENT and body.thread_id is None:
        # The agent of a message that names no thread.
        del given["agent_id"]
    canonical = orjson.dumps(given, _spelling, orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME)
    return hashlib.sha256(path.encode() + b"\0" + canonical).digest()


def _spelling(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} is in no body")
