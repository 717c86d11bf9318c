"""The one check of an author's rights over documents that steer agents. Pure.

Two rules hold for every document, whichever route, command or tool of an agent writes it:

- What a field gives beyond the usual (a shell, a directory, a secret, calls without approval) is given by authors with
  its scope only. `contracts.authors.rights` says of each field what that is. What was there before needs nothing.
- A document that holds such a thing, or steers agents that do, is steered by authors with the scope only: the agents
  would do with it what the author wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from nova_workers.base.errors import Forbidden
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.authors.rights import AuthorScope
from nova_workers.domain.agents.rules.entries import Entry, GrantForms, document_entries

Holdings = Mapping[AuthorScope, Collection[str]]
"""What needs each scope, in words."""

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class AuthorRights:
    """What the author of a document may give, and write for agents that have it.

    Attributes:
        trust: More trust than ``controlled``, directories, and calls without approval.
        secrets: Secrets, for tools.
    """

    trust: bool = False
    secrets: bool = False

    @classmethod
    def of_agent(cls, holdings: Holdings) -> AuthorRights:
        """Return the rights of an agent as an author: those that it has itself."""
        return cls(trust="trust" in holdings, secrets="secrets" in holdings)

    def lacking(self) -> Iterator[AuthorScope]:
        """Yield the scopes that the author lacks."""
        if not self.trust:
            yield "trust"
        if not self.secrets:
            yield "secrets"


@dataclass(frozen=True, slots=True)
class Authored:
    """A document that an author writes.

    Attributes:
        document: The new one.
        before: The current one, or the one that applies without any; None if nothing did what this one does.
        grants: Reads the configurations of an agent's capabilities.
        steers: What the agents hold that it steers beside itself.
        at: Where it is in its request, with a dot at the end.
    """

    document: BaseModel
    before: BaseModel | None = None
    grants: GrantForms | None = None
    steers: Holdings = field(default_factory=dict[AuthorScope, Collection[str]])
    at: str = ""


def check_author(rights: AuthorRights, written: Authored) -> None:
    """Check that an author may write a document.

    Raises:
        Forbidden: The author may not; names the field, and the scope that permits it.
    """
    lacking = tuple(rights.lacking())
    if not lacking:
        return
    before = {} if written.before is None else dict(document_entries(written.before, written.grants))
    after = dict(document_entries(written.document, written.grants))
    for path, entry in after.items():
        if entry.right.scope in lacking:
            for place, given in entry.gained(before.get(path)):
                raise _needs_scope(entry.right.scope, f"{written.at}{path}{place and '.'}{place}", f"giving {given}")
    held = _held(after.values()) if written.before is not None else {}
    for scope in lacking:
        if things := (*held.get(scope, ()), *written.steers.get(scope, ())):
            for path in _steered(before, after):
                raise _needs_scope(scope, f"{written.at}{path}", f"writing it where {_named(things)} can be used")


def check_steers(rights: AuthorRights, holdings: Holdings, *, field: str, what: str) -> None:
    """Check that an author may write a part of what agents do that is kept elsewhere, such as a skill.

    Args:
        rights: Of the author.
        holdings: What the agents hold.
        field: Of the request, which has what is written.
        what: Names the agents.

    Raises:
        Forbidden: They hold what the author may not give; names the scope that permits it.
    """
    for scope in rights.lacking():
        if holdings.get(scope):
            # Without the names: authors of such parts may not read agents.
            raise _needs_scope(scope, field, f"writing it for {what}, which has what this scope gives,")


def holdings_of(document: BaseModel, grants: GrantForms | None = None) -> Holdings:
    """Return the parts of a document that need scopes."""
    return _held(entry for _, entry in document_entries(document, grants))


def holdings_of_agents(specs: Mapping[str, AgentSpec], grants: GrantForms) -> Holdings:
    """Return the holdings of agents, each with the agent's id."""
    held: dict[AuthorScope, list[str]] = {}
    for agent_id, spec in specs.items():
        for scope, things in holdings_of(spec, grants).items():
            held.setdefault(scope, []).extend(f"{thing} of the agent {agent_id!r}" for thing in things)
    return held


def _held(entries: Iterable[Entry]) -> dict[AuthorScope, list[str]]:
    held: dict[AuthorScope, list[str]] = {}
    for entry in entries:
        if entry.right.scope is not None and (things := entry.held()):
            held.setdefault(entry.right.scope, []).extend(things)
    return held


def _steered(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the changed fields that are a part of what agents do."""
    for path, entry in after.items():
        if entry.right.steers and (path not in before or before[path].value != entry.value):
            yield path
    yield from (path for path, entry in before.items() if entry.right.steers and path not in after)


def _named(things: Collection[str]) -> str:
    shown = ", ".join([*things][:_MOST_NAMED])
    return shown if len(things) <= _MOST_NAMED else f"{shown} and {len(things) - _MOST_NAMED} more"


def _needs_scope(scope: AuthorScope, field: str, what: str) -> Forbidden:
    return Forbidden(
        f"{field}: {what} needs a key with the scope {scope!r}. Use one, or ask a person with the scopes `keys` and "
        f"{scope!r} to make it: `nova keys create NAME --scope agents --scope {scope}`.",
        field=field,
        needed=scope,
    )
