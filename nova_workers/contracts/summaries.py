"""What a tool call does, and did, in one line that a person reads while waiting."""

from collections.abc import Callable
from typing import Any

from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.engine import ToolCall
from nova_workers.observability.redaction import hide

__all__ = ["MAX_SUMMARY_CHARS", "line", "tool_result_summary", "tool_use_summary"]

MAX_SUMMARY_CHARS = 120

_SENTENCES: dict[str, Callable[[JsonObject], str]] = {
    "Read": lambda given: f"Reading {given['file_path']}",
    "Write": lambda given: f"Writing {given['file_path']}",
    "Edit": lambda given: f"Editing {given['file_path']}",
    "Glob": lambda given: f"Looking for files like {given['pattern']}",
    "Grep": lambda given: f"Searching for {given['pattern']}",
    "Bash": lambda given: f"Running {given['command']}",
    "WebSearch": lambda given: f"Searching the web for {given['query']}",
    "WebFetch": lambda given: f"Fetching {given['url']}",
    "memory_save": lambda given: f"Remembering: {given['content']}",
    "memory_list": lambda _given: "Looking through memories",
    "memory_delete": lambda given: f"Forgetting {given['memory_id']}",
}
"""Tools that have a sentence of their own. Any other reads as its name and its arguments."""


def tool_use_summary(name: str, given: JsonObject) -> str:
    """Return what the call is about to do. Never raises, whatever the model put in."""
    sentence = _SENTENCES.get(name)
    if sentence is not None:
        try:
            return line(sentence(given))
        except KeyError:
            # The model left the argument out; the tool will say so.
            pass
    arguments = ", ".join(f"{key}: {_plain(value)}" for key, value in given.items())
    words = name.replace("_", " ").strip().capitalize()
    return line(f"{words} ({arguments})" if arguments else words)


def tool_result_summary(call: ToolCall) -> str:
    """Return what came of a call that ended."""
    if call.status == "interrupted":
        return f"{call.tool_name}: interrupted"
    said = text_of(call.result or ())
    if call.status == "failed":
        return line(f"{call.tool_name} failed: {said}")
    return line(f"{call.tool_name}: {said or 'done'}")


def _plain(value: Any) -> str:
    if isinstance(value, dict | list):
        return "…"
    return str(value)


def line(text: str) -> str:
    """Return text as one line that is short enough to show."""
    # Secrets first: of one that is cut nobody would know any more. A tool may return a megabyte; no more than can show
    # is looked at then.
    short = " ".join(hide(text)[: 4 * MAX_SUMMARY_CHARS].split())
    return short if len(short) <= MAX_SUMMARY_CHARS else short[: MAX_SUMMARY_CHARS - 1] + "…"
