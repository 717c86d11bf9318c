"""Names of tools and ids of calls in the form that OpenAI accepts: letters, digits, ``_`` and ``-``, bounded."""

import hashlib
import re
from collections.abc import Iterable

_MAX_CHARS = 64
_FIT = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_CHARS}}}")
_MAX_ID_CHARS = 40
_FIT_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_ID_CHARS}}}")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8


def wire_name(name: str) -> str:
    """Return the name that the provider accepts for a tool: its own if that fits, else a shortened one with a hash."""
    if _FIT.fullmatch(name):
        return name
    return _shortened(name, _MAX_CHARS)


def wire_id(call_id: str) -> str:
    """Return the id that the provider accepts for a call, likewise: at most 40 characters with chat completions."""
    return call_id if _FIT_ID.fullmatch(call_id) else _shortened(call_id, _MAX_ID_CHARS)


def _shortened(name: str, max_chars: int) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARS]
    return f"{_NOT_ALLOWED.sub('_', name)[: max_chars - _HASH_CHARS - 1]}_{digest}"


class ToolNames:
    """The names of a turn's tools, in both directions."""

    def __init__(self, names: Iterable[str]) -> None:
        self._own = {wire: name for name in names if (wire := wire_name(name)) != name}

    def own(self, wire: str) -> str:
        """Return the tool's name in the turn; a name that the model invented is returned unchanged."""
        return self._own.get(wire, wire)
