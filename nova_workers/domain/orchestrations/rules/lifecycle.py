"""Which moves between the states of an agent are legal. Pure.

::

    PENDING ─▶ STARTING ─▶ RUNNING ─▶ COMPLETED
                 ▲           │  ▲
                 │           ▼  │
                 │     WAITING_FOR_{PARENT,CHILD,EXPERT} ─▶ FAILED
                 └── COMPLETED, FAILED: restart
    every state ─▶ KILLED          KILLED ─▶ PENDING: restart

An agent that could not start fails from PENDING or STARTING. A restart queues a new run, so COMPLETED and FAILED may
also return to PENDING until that run is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nova_workers.base.vocabulary import AgentState

_WAITING: Final[tuple[AgentState, ...]] = ("WAITING_FOR_PARENT", "WAITING_FOR_CHILD", "WAITING_FOR_EXPERT")

_NEXT: Final[Mapping[AgentState, tuple[AgentState, ...]]] = {
    "PENDING": ("STARTING", "FAILED"),
    "STARTING": ("RUNNING", "FAILED"),
    "RUNNING": (*_WAITING, "COMPLETED", "FAILED"),
    "WAITING_FOR_PARENT": ("RUNNING", "FAILED"),
    "WAITING_FOR_CHILD": ("RUNNING", "FAILED"),
    "WAITING_FOR_EXPERT": ("RUNNING", "FAILED"),
    "COMPLETED": ("PENDING", "STARTING"),
    "FAILED": ("PENDING", "STARTING"),
    "KILLED": ("PENDING",),
}


def validate_transition(source: AgentState, target: AgentState) -> None:
    """Check a move.

    Raises:
        ValueError: It is not legal.
    """
    if target != "KILLED" and target not in _NEXT[source]:
        legal = ", ".join((*_NEXT[source], "KILLED"))
        raise ValueError(f"An agent cannot move from {source} to {target}; from {source} it can move to {legal}.")


def legal_sources(target: AgentState) -> tuple[AgentState, ...]:
    """Return the states from which a move to `target` is legal: the guard of the statement that makes it.

    KILLED may be reached from itself, so that a repeated kill changes nothing.
    """
    if target == "KILLED":
        return tuple(_NEXT)
    return tuple(state for state, following in _NEXT.items() if target in following)


def can_restart(state: AgentState) -> bool:
    """Return whether an agent in this state may be restarted: it has ended."""
    return "PENDING" in _NEXT[state]
