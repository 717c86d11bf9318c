"""Who makes the changes of a context, which Postgres records in the audit log.

A context without an actor records nothing: the fleet's own bookkeeping, and messages that people send, whose record is
the run. What a context starts inherits its actor.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass

import orjson

from nova_workers.base.vocabulary import ActorKind

_NO_ACTOR = ""

_actor: ContextVar[str] = ContextVar("actor", default=_NO_ACTOR)


@dataclass(frozen=True, slots=True)
class Actor:
    """The key, the person, the agent or the command that makes changes.

    Attributes:
        kind: What it is. A command is one that changes the database itself, without the API.
        id: Of the key, the person or the agent; the command.
        name: Of the key or the person, for people. An agent and a command are known by their ids.
        address: Of the client whose request it is; of a command the machine.
        trace_id: Of the request.
        run_id: The run whose agent it is.
    """

    kind: ActorKind
    id: str
    tenant_id: str
    name: str | None = None
    address: str | None = None
    trace_id: str | None = None
    run_id: str | None = None


def act_as(actor: Actor) -> None:
    """Record the changes of this context, from now on, as an actor's."""
    _actor.set(_document(actor))


@contextmanager
def acting_as(actor: Actor) -> Generator[None]:
    """Record the changes of a block as an actor's."""
    token = _actor.set(_document(actor))
    try:
        yield
    finally:
        _actor.reset(token)


def current_actor() -> str:
    """Return the actor of this context as sessions bind it; empty without one."""
    return _actor.get()


def _document(actor: Actor) -> str:
    name = actor.name if actor.kind in ("key", "person") else actor.id
    return orjson.dumps(asdict(actor) | {"name": name}).decode()
