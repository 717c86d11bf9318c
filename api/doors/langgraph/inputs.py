"""What a run of the protocol is given: messages and options, or an answer to what a run asks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple

import orjson
from pydantic import Field, StrictInt, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.wire import Metadata, OnBusy, PastMessage, RunView, StatelessRunCreate
from nova_workers.contracts.waits import (
    AFFIRMATIVE,
    AskApproval,
    AskUser,
    CallClientTool,
    RunAnswer,
    ToolResult,
    WaitView,
)

from ...errors import NotOffered
from .bodies import Read, named_by, refuse_given

StreamMode = Literal[
    "values", "messages", "messages-tuple", "updates", "events", "custom", "debug", "tasks", "checkpoints"
]
_STREAMED: Final = frozenset({"values", "messages", "messages-tuple", "updates", "events", "custom"})
_REFUSED: Final[Mapping[str, str]] = {
    "interrupt_before": "approval rules of the agent say before which tools it asks (`permissions`).",
    "interrupt_after": "approval rules of the agent say before which tools it asks (`permissions`).",
    "webhook": "webhooks are of the tenant: POST /v1/webhooks, for one agent or all.",
    "feedback_keys": "the fleet takes no feedback.",
}
_ROLES: Final = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}
_INSTRUCTING: Final = frozenset({"system", "developer"})
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_BEGINNING: Final = "[The conversation begins.]"


class RunMake(Read):
    """The body of a run. What concerns graphs alone, such as `durability` and `stream_subgraphs`, is passed over."""

    assistant_id: Annotated[str, Field(min_length=1, max_length=80)]
    input: Any = None
    command: JsonObject | None = None
    metadata: Metadata | None = None
    config: JsonObject | None = None
    context: JsonObject | None = None
    stream_mode: StreamMode | Annotated[list[StreamMode], Field(max_length=20)] = "values"
    multitask_strategy: Literal["reject", "enqueue", "interrupt", "rollback"] = "enqueue"
    if_not_exists: Literal["create", "reject"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "continue"
    on_completion: Literal["delete", "keep", "complete"] = "delete"
    after_seconds: Annotated[StrictInt, Field(ge=1, le=366 * 86_400)] | None = None
    checkpoint: Any = None
    checkpoint_id: Any = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    webhook: Any = None
    feedback_keys: Any = None


class Said(NamedTuple):
    """The messages of an input.

    Attributes:
        past: What was said before the new message.
        message: What is new.
        instructions: Those of messages of the system.
    """

    past: list[PastMessage]
    message: list[ContentBlock]
    instructions: str | None


def modes_of(given: StreamMode | Sequence[StreamMode] | None) -> frozenset[str]:
    """Return the modes of a stream.

    Raises:
        NotOffered: One of them shows a graph.
    """
    modes = frozenset([given] if isinstance(given, str) else given or ["values"])
    if lacking := modes - _STREAMED:
        raise NotOffered(
            f"stream_mode: {', '.join(sorted(lacking))} is not there, since an agent is no graph; use "
            f"{', '.join(sorted(_STREAMED))}.",
            field="stream_mode",
        )
    return modes


def refuse_unkept(body: RunMake) -> None:
    """Refuse what no run keeps.

    Raises:
        NotOffered: It is asked for.
    """
    refuse_given(body, _REFUSED)
    _on_busy(body)
    if body.on_disconnect == "cancel":
        raise NotOffered(
            "on_disconnect: a run goes on when its client leaves, so that the client can come back. Cancel it with "
            "POST /threads/{thread_id}/runs/{run_id}/cancel.",
            field="on_disconnect",
        )
    for name in ("goto", "update"):
        # Clients send commands whole, with empty fields.
        if (body.command or {}).get(name) not in (None, [], {}, ""):
            raise NotOffered(f"command: {name} is for graphs; send a message as input, or `resume`.", field="command")


def said_in(given: Any) -> Said:
    """Return the messages of an input: a text, messages, or an object that has messages.

    Raises:
        InvalidInput: It is something else; names the field.
    """
    if isinstance(given, dict) and not {"messages", "content"} & given.keys():
        raise InvalidInput(
            "input: give messages, such as {'messages': [{'role': 'user', 'content': '…'}]}.", field="input"
        )
    messages: Any = given.get("messages", [given]) if isinstance(given, dict) else given
    listed: list[Any] = messages if isinstance(messages, list) else [messages]
    read = [_read(message, f"input.messages.{at}") for at, message in enumerate(listed)]
    texts = [_text(content) for role, content in read if role == "system"]
    spoken = [(role, content) for role, content in read if role != "system" and content]
    last = max((at for at, (role, _) in enumerate(spoken) if role == "assistant"), default=-1)
    message = [block for _, content in spoken[last + 1 :] for block in content]
    if not message:
        raise InvalidInput("input: the last message has nothing that an agent can read.", field="input.messages")
    return Said(_past(spoken[: last + 1]), message, "\n\n".join(texts) or None)


def run_of(body: RunMake, said: Said, *, thread_id: str | None, now: datetime) -> StatelessRunCreate:
    """Return a run's message with its options.

    Raises:
        InvalidInput: An option is beyond its bounds; names the field.
    """
    config = body.config or {}
    configurable = config.get("configurable")
    named = {**(configurable if isinstance(configurable, dict) else {}), **(body.context or {})}
    limit = config.get("recursion_limit")
    fields: JsonObject = {
        "message": said.message,
        "instructions": said.instructions,
        "metadata": body.metadata or {},
        "model": named.get("model"),
        # A graph takes a step for the model and one for its tools.
        "max_turns": (limit + 1) // 2 if isinstance(limit, int) and not isinstance(limit, bool) else None,
        "on_busy": _on_busy(body),
    }
    if thread_id is None:
        fields |= {"agent_id": body.assistant_id, "ephemeral": body.on_completion != "keep"}
    else:
        fields |= {"thread_id": thread_id}
    if body.after_seconds is not None:
        fields["start_at"] = (now + timedelta(seconds=body.after_seconds)).isoformat()
    given = {name: value for name, value in fields.items() if value is not None}
    return named_by(StatelessRunCreate, given, _NAMES)


_NAMES: Final = {
    "message": "input.messages",
    "instructions": "input.messages",
    "agent_id": "assistant_id",
    "max_turns": "config.recursion_limit",
    "model": "config.configurable.model",
    "start_at": "after_seconds",
    "on_busy": "multitask_strategy",
}


class Answers(NamedTuple):
    """Answers to what a run asks."""

    questions: list[RunAnswer]
    results: list[ToolResult]


def answers_of(run: RunView, waits: Sequence[WaitView], resume: Any) -> Answers:
    """Return the answers that `resume` has, by the ids of interrupts, or to the only one that is open.

    Raises:
        InvalidInput: It does not say which one, or a value has no meaning for it.
    """
    ids = {wait.id: wait for wait in waits}
    if isinstance(resume, dict) and resume and all(str(name).startswith("wait_") for name in resume):
        if unknown := resume.keys() - ids.keys():
            raise InvalidInput(
                f"command.resume: the run asks nothing with the id {sorted(unknown)[0]!r} now.", field="command.resume"
            )
        given = [(ids[name], value) for name, value in resume.items()]
    elif len(waits) == 1:
        given = [(waits[0], resume)]
    else:
        raise InvalidInput(
            f"command.resume: the run asks {len(waits)} things; give an object with a value for each interrupt id.",
            field="command.resume",
        )
    answers = Answers([], [])
    for wait, value in given:
        match wait.request:
            case AskApproval():
                answers.questions.append(_decision(wait, value))
            case AskUser():
                answers.questions.append(_answer(wait, text=_as_text(value)))
            case CallClientTool():
                answers.results.append(ToolResult(tool_call_id=wait.tool_call_id, content=_as_text(value)))
            case _:
                pass
    return answers


def _decision(wait: WaitView, value: Any) -> RunAnswer:
    match value:
        case bool():
            return _answer(wait, approve=value)
        case str():
            is_yes = value.strip().lower() in AFFIRMATIVE
            return _answer(wait, approve=is_yes, text=None if is_yes else value)
        case {"approve": bool(approve)}:
            return _answer(wait, approve=approve, text=value.get("text"))
        case {"decisions": [{"type": "approve" | "reject" as kind, **rest}]} | {
            "type": "approve" | "reject" as kind,
            **rest,
        }:
            return _answer(wait, approve=kind == "approve", text=rest.get("message"))
        case _:
            raise InvalidInput(
                "command.resume: a call needs a permission: true, false, or {'type': 'approve'} or {'type': 'reject', "
                "'message': '…'}.",
                field="command.resume",
            )


def _answer(wait: WaitView, **fields: Any) -> RunAnswer:
    try:
        return RunAnswer(wait_id=wait.id, **fields)
    except ValidationError as error:
        raise InvalidInput(f"command.resume: {error.errors()[0]['msg']}.", field="command.resume") from error


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _on_busy(body: RunMake) -> OnBusy:
    if body.multitask_strategy == "rollback":
        raise NotOffered(
            "multitask_strategy: a run that began is not undone. Use interrupt, and fork at the turn before.",
            field="multitask_strategy",
        )
    return body.multitask_strategy


def _past(spoken: Sequence[tuple[str, list[ContentBlock]]]) -> list[PastMessage]:
    past = [PastMessage.model_validate({"role": role, "content": content}) for role, content in spoken]
    if past and past[0].role == "assistant":
        return [PastMessage(role="user", content=_BEGINNING), *past]
    return past


def _read(message: Any, where: str) -> tuple[str, list[ContentBlock]]:
    match message:
        case str():
            return "user", [text_block(message)] if message else []
        case [str(role), content]:
            pass
        case {"role": str(role), "content": content} | {"type": str(role), "content": content}:
            pass
        case _:
            raise InvalidInput(f"{where}: give a text, or an object with role and content.", field=where)
    blocks = _blocks(content, where)
    if role in _INSTRUCTING:
        return "system", blocks
    if role not in _ROLES:
        raise InvalidInput(
            f"{where}.role: {role!r:.40} is none of user, assistant and system. Results of tools are given with "
            "`command: {'resume': …}`.",
            field=f"{where}.role",
        )
    return _ROLES[role], blocks


def _blocks(content: Any, where: str) -> list[ContentBlock]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_block(content)]
    if not isinstance(content, list):
        raise InvalidInput(f"{where}.content: give a text or a list of blocks.", field=f"{where}.content")
    return [_block(block, f"{where}.content.{at}") for at, block in enumerate(content)]


def _block(block: Any, where: str) -> ContentBlock:
    match block:
        case str() | {"type": "text", "text": str()}:
            return text_block(block if isinstance(block, str) else block["text"])
        case {"type": "image_url", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:
            return _media("image", url)
        case {"type": "image" | "document", "source": {"type": str()}}:
            return block
        case {"type": "image" | "file" as kind, "url": str(url)}:
            return _media("image" if kind == "image" else "document", url)
        case {"type": "image" | "file" as kind, "mime_type": str(media), **rest} if isinstance(
            data := rest.get("base64", rest.get("data")), str
        ):
            return _media("image" if kind == "image" else "document", f"data:{media};base64,{data}")
        case _:
            raise InvalidInput(f"{where}: no agent reads this; give text, image_url, image or file.", field=where)


def _media(kind: str, url: str) -> ContentBlock:
    if (found := _DATA_URL.fullmatch(url)) is not None:
        return {"type": kind, "source": {"type": "base64", "media_type": found[1], "data": found[2]}}
    return {"type": kind, "source": {"type": "url", "url": url}}


def _text(content: Sequence[ContentBlock]) -> str:
    return "".join(str(block.get("text", "")) for block in content)
