"""Rules of the local stand-in for a model, on the last message. It is not a language model.

It shows what a fleet does with a real one: it streams, calls the memory tools and uses their results, works through a
task, and names conversations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nova_workers.devstack.stand_in.order import order_reply
from nova_workers.devstack.stand_in.reply import Reply, ToolUse
from nova_workers.devstack.stand_in.tree import tree_reply
from nova_workers.devstack.stand_in.work import work_reply
from nova_workers.domain.prompts.rules import is_event_block

__all__ = ["Reply", "ToolUse", "reply_to"]

_REMEMBER = re.compile(
    r"^\s*(?:please\s+|nova[,:]?\s+)*(?:remember|note|memori[sz]e|save)(?:\s+(?:that|this))?\s*[:,]?\s+(?P<fact>.+)",
    re.IGNORECASE | re.DOTALL,
)
_RECALL = re.compile(r"\b(my|our|me|us|i|we|remember\w*|memor\w+|know)\b", re.IGNORECASE)
_MEMORY_LINE = re.compile(r"^mem_\w+ \([\d-]+\): (?P<fact>.+)$", re.MULTILINE)
_TITLE_WORDS = 5
_WORD = re.compile(r"\w{3,}")
_FILLER = frozenset("the and for are was what when where which who how does did our your you that this about".split())
_GREETING = re.compile(r"^\s*(hi|hello|hey|good (morning|evening|afternoon))\b", re.IGNORECASE)
_HOW = re.compile(r"\b(how|what happens|explain|describe|why)\b", re.IGNORECASE)

_JOURNEY = (
    "Your message was committed to Postgres before the API answered 202, so it cannot be lost. A notification in "
    "Valkey woke a worker; the worker took the lock of this thread and a fence that only grows, so no other worker can "
    "write here. Each step is committed before the next one starts: if the worker dies now, another one continues "
    "after the last finished step. Meanwhile these words reach you as live events."
)
_ABOUT = (
    "I am a stand-in for a model, on loopback, so that the fleet can be tried without a key. I know a few phrases: "
    "tell me to remember something, ask me for it later, or ask what happens to a message. With ANTHROPIC_API_KEY set, "
    "a real model answers here."
)
_GREET = "Hello! The fleet is up, and this is your default agent. "
_SAVING = "I will keep that."
_SAVED = "It is saved. Every agent of this fleet can recall it, in any later conversation, on any worker."
_LOOKING = "Let me look at what is remembered."
_NOTHING = "Nothing about that is remembered. Tell me to remember it, and I will."
_TOOL_FAILED = "The tool said: "


def reply_to(request: Mapping[str, Any]) -> Reply:
    """Answer a request to the Messages API, given as its JSON body."""
    messages: Sequence[Mapping[str, Any]] = request.get("messages") or [{}]
    asked = _last_user_text(messages)
    results = _blocks(messages[-1], "tool_result")
    failed = any(result.get("is_error") for result in results)
    plan, last = _text_of(request.get("system")), _results_text(results)
    if not failed and (reply := work_reply(asked, plan, begun=_steps_begun(messages), last=last)) is not None:
        return reply
    if not failed and (reply := tree_reply(plan, asked, last)) is not None:
        return reply
    if not results and (reply := order_reply(plan, asked)) is not None:
        return reply
    return _after_tool(results, asked) if results else _answer(request, asked)


def _answer(request: Mapping[str, Any], asked: str) -> Reply:
    tools = {str(tool.get("name")) for tool in request.get("tools") or ()}
    if not tools and "title" in _system(request):
        return Reply(_title(asked))
    if "memory_save" in tools and (match := _REMEMBER.match(asked)):
        fact = match["fact"].strip()
        return Reply(_SAVING, ToolUse("memory_save", {"content": fact[:1].upper() + fact[1:]}))
    if "memory_list" in tools and asked.rstrip().endswith("?") and _RECALL.search(asked) and not _HOW.search(asked):
        return Reply(_LOOKING, ToolUse("memory_list", {}))
    if _GREETING.match(asked):
        return Reply(_GREET + _ABOUT)
    return Reply(_JOURNEY if _HOW.search(asked) else f"You said: “{_shortened(asked)}” {_ABOUT}")


def _after_tool(results: Sequence[Mapping[str, Any]], asked: str) -> Reply:
    text = _results_text(results)
    if any(result.get("is_error") for result in results):
        return Reply(_TOOL_FAILED + text)
    if text.startswith("Saved"):
        return Reply(_SAVED)
    facts = [match["fact"] for match in _MEMORY_LINE.finditer(text)]
    wanted = _words(asked)
    best = max(facts, key=lambda fact: len(wanted & _words(fact)), default=None)
    if best is None:
        return Reply(_NOTHING if text.startswith("Nothing") else text)
    if not wanted & _words(best) and not re.search(r"\bremember|\bmemor", asked, re.IGNORECASE):
        return Reply(_NOTHING)
    return Reply(f"From memory: {best}")


def _results_text(results: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(_text_of(result.get("content")) for result in results)


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - _FILLER


def _title(excerpt: str) -> str:
    first = re.search(r"User: (?P<text>.+)", excerpt)
    words = re.findall(r"[\w'-]+", first["text"] if first else excerpt)
    return " ".join(words[:_TITLE_WORDS]) or "A new conversation"


def _last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the latest message of the user that has text."""
    for message in reversed(messages):
        if message.get("role") == "user" and (text := _text_of(_without_event(message.get("content")))):
            return text
    return ""


def _without_event(content: object) -> object:
    """Return the content without the event context, which precedes the user's text."""
    match content:
        case [{"type": "text", "text": str(first)}, *said] if is_event_block(first):
            return said
        case _:
            return content


def _blocks(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [block for block in content if block.get("type") == kind] if isinstance(content, list) else []


def _steps_begun(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    calls = [block for message in messages for block in _blocks(message, "tool_use")]
    return {str(call["input"].get("step_id")) for call in calls}


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks: list[Mapping[str, Any]] = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def _system(request: Mapping[str, Any]) -> str:
    return _text_of(request.get("system")).lower()


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 200 else flat[:199] + "…"
