"""The permissions of API keys: scopes, what each includes, and the roles that are named sets of them."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from nova_workers.base.vocabulary import AccessRole

Scope = Literal[
    "runs:read",
    "feedback",
    "runs",
    "prompts",
    "agents:read",
    "pause",
    "agents",
    "trust",
    "workspace:read",
    "workspace",
    "secrets",
    "keys",
    "channels",
    "operator",
]
"""A permission of a key; those that end in `:read` read only. `feedback`: give feedback on runs as an end user, and
take it back. `runs`: threads, runs, answers to them, usage. `agents`: agents. `pause`: pause and resume the tenant or
an agent. `trust`: beside `agents`, to give an agent more trust or directories. `workspace`: tasks, notes, files,
memories, skills, triggers, and exporting them all. `secrets`: secrets. `keys`: API keys of its tenant. `channels`:
leases, by which one process serves a channel. `operator`: the whole fleet, across tenants (pause, depth, workers,
ceilings)."""

INCLUDED: Final[Mapping[Scope, tuple[Scope, ...]]] = {
    "runs": ("runs:read", "feedback"),
    "agents": ("agents:read", "pause"),
    "workspace": ("workspace:read",),
}
"""The scopes that each scope includes. These include no others."""

_BUILD: Final[tuple[Scope, ...]] = ("runs", "prompts", "agents", "workspace", "secrets")

ROLES: Final[Mapping[AccessRole, tuple[Scope, ...]]] = {
    "viewer": ("runs:read", "agents:read", "workspace:read"),
    "operator": ("runs", "prompts", "agents:read", "pause", "workspace"),
    "builder": _BUILD,
    "admin": (*_BUILD, "trust", "keys", "channels"),
}
"""The scopes of each role. A key stores the scopes that its role had when the key was made: another release that has
other roles changes no right of a key that exists."""


def with_included(scopes: Iterable[str]) -> frozenset[str]:
    """Return scopes with those that they include."""
    given = frozenset(scopes)
    return given.union(*(included for scope, included in INCLUDED.items() if scope in given))


def whole_scopes() -> tuple[Scope, ...]:
    """Return the scopes that no other includes: a key with these may do everything."""
    included = {scope for scopes in INCLUDED.values() for scope in scopes}
    return tuple(scope for scope in get_args(Scope) if scope not in included)
