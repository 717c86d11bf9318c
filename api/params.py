"""Path and query parameters that many routes share."""

import re
from collections.abc import Callable
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, StringConstraints

from nova_workers.contracts.agents import AGENT_ID_PATTERN
from nova_workers.errors import NotFound

__all__ = ["AgentIdPath", "AgentIdQuery", "KeyIdPath", "RunIdPath", "ThreadIdPath", "ThreadIdQuery"]

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_ID_PATTERN = r"^[A-Za-z0-9_-]{1,80}$"
_QUOTE_CHARS = 80


def _known_form(kind: str) -> Callable[[str], str]:
    """Refuse what cannot be an id as what does not exist, before Postgres sees it: it takes no U+0000."""

    def check(value: str) -> str:
        if _ID.match(value) is None:
            quoted = value if len(value) <= _QUOTE_CHARS else value[:_QUOTE_CHARS] + "…"
            raise NotFound(f"There is no {kind} {quoted!r}.")
        return value

    return check


AgentIdPath = Annotated[str, Path(description="An agent's id."), AfterValidator(_known_form("agent"))]
KeyIdPath = Annotated[str, Path(description="A key's id."), AfterValidator(_known_form("key"))]
RunIdPath = Annotated[str, Path(description="A run's id."), AfterValidator(_known_form("run"))]
ThreadIdPath = Annotated[str, Path(description="A thread's id."), AfterValidator(_known_form("thread"))]

AgentIdQuery = Annotated[
    Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN, max_length=64)] | None,
    Query(description="Only of this agent."),
]
ThreadIdQuery = Annotated[
    Annotated[str, StringConstraints(pattern=_ID_PATTERN)] | None, Query(description="Only of this thread.")
]
