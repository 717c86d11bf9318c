"""The path of each archive row in a folder; export and import share these names."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from nova_workers.base.errors import InvalidInput

LINE_KINDS: Final = {
    "threads": "thread",
    "thread_states": "state",
    "runs": "run",
    "turns": "turn",
    "messages": "message",
    "tool_calls": "tool_call",
    "compactions": "compaction",
    "usage": "usage",
    "feedback": "feedback",
    "run_waits": "wait",
    "thread_heads": "head",
    "tasks": "task",
    "task_steps": "step",
    "task_resources": "resource",
    "task_changes": "change",
    "trigger_firings": "firing",
    "deliveries": "delivery",
}
"""Tables whose rows share a file with those of other tables, one per line, and the name of such a line."""

PLAIN_LISTS: Final = {"memories": "memories.json", "secrets": "secrets.json"}
"""Tables that have a file of their own, with a list."""

NOTE_FIELDS: Final = ("id", "title", "shared", "pinned", "created_at", "updated_at")
"""Front matter of a note. The folder names its agent."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\Z")


def place(*names: str) -> Path:
    """Return a relative path of names that come from elsewhere.

    Raises:
        InvalidInput: A name is not plain, and might lead out of the folder.
    """
    for name in names:
        if _NAME.match(name) is None:
            raise InvalidInput(f"{name[:80]!r} is not a name that a folder can have.", field="name")
    return Path(*names)


def skill_file(name: str, path: str) -> Path:
    """Return the path of a skill's file.

    Raises:
        InvalidInput: The path leads out of the skill's folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part in {"..", "."} or "\\" in part or "\0" in part for part in parts):
        raise InvalidInput(f"Skill {name!r} has a file {path[:80]!r}, which leads out of its folder.", field="path")
    return place(name).joinpath(*parts)


def dump(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pretty(value: Any) -> str:
    """Return JSON for people."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
