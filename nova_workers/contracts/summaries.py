"""One-line summaries of tool calls and their results, shown to people while a turn runs."""

from collections.abc import Callable
from typing import Any

from nova_workers.base.observability.redaction import hide
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.engine import ToolCall

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
"""Summaries of specific tools. Any other tool is shown as its name and arguments."""


def tool_use_summary(name: str, given: JsonObject) -> str:
    """Return a summary of the call. Never raises, whatever arguments the model gave."""
    sentence = _SENTENCES.get(name)
    if sentence is not None:
        try:
            return one_line(sentence(given))
        except KeyError:
            # The model omitted the argument; the tool will report it.
            pass
    arguments = ", ".join(f"{key}: {_plain(value)}" for key, value in given.items())
    title = name.replace("_", " ").strip().capitalize()
    return one_line(f"{title} ({arguments})" if arguments else title)


def tool_result_summary(call: ToolCall) -> str:
    """Return a summary of a call's result."""
    if call.status == "interrupted":
        return f"{call.tool_name}: interrupted"
    said = text_of(call.result or ())
    if call.status == "failed":
        return one_line(f"{call.tool_name} failed: {said}")
    return one_line(f"{call.tool_name}: {said or 'done'}")


def _plain(value: Any) -> str:
    if isinstance(value, dict | list):
        return "…"
    return str(value)


def one_line(text: str) -> str:
    """Return text as one line of at most `MAX_SUMMARY_CHARS`, with secrets redacted."""
    # Redact first: a truncated secret would not be recognised. Then look only at what can be shown, since a tool may
    # return a megabyte.
    short = " ".join(hide(text)[: 4 * MAX_SUMMARY_CHARS].split())
    return short if len(short) <= MAX_SUMMARY_CHARS else short[: MAX_SUMMARY_CHARS - 1] + "…"
