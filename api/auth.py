"""Callers and their scopes: the dependency of every route of ``/v1``. `api.guard` authenticates."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Final

from fastapi import Request, Security
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase
from starlette.types import Scope as ASGIScope

from nova_workers.base.errors import Forbidden
from nova_workers.base.observability.tracing import current_trace_id
from nova_workers.contracts.http.scopes import Scope
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.keys.rules.giving import KeyRights
from nova_workers.ledger.auditing import Actor, act_as
from nova_workers.ledger.visibility import see_all_tenants

_CALLER: Final = "nova.caller"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller. Every query is restricted to `tenant_id`."""

    key_id: str
    key_name: str
    tenant_id: str
    scopes: frozenset[str]
    """Those of the key, with those that they include."""
    address: str | None
    """Where the request came from; None for a Unix socket."""
    principal: str
    """Whose the request is: the person's, whose keys end with their sessions, or the key's."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Those of the clients that may use the key; empty: all."""
    person_id: str | None = None
    """The person whose session the key is of, after single sign-on."""

    def may(self, scope: Scope) -> bool:
        """Return whether the key has a scope."""
        return scope in self.scopes

    @property
    def author(self) -> AuthorRights:
        """What it may give as the author of a document that steers agents."""
        return AuthorRights(trust=self.may("trust"), secrets=self.may("secrets"))

    @property
    def key_rights(self) -> KeyRights:
        """What it may give to other keys."""
        return KeyRights(self.scopes, self.networks)

    def actor(self) -> Actor:
        """Return it as the audit log names it."""
        return Actor(
            "key" if self.person_id is None else "person",
            self.principal,
            self.tenant_id,
            name=self.key_name,
            address=self.address,
            trace_id=current_trace_id(),
        )

    def need(self, scope: Scope) -> None:
        """Refuse unless the key has a scope.

        Raises:
            Forbidden: The key lacks the scope.
        """
        if scope not in self.scopes:
            raise Forbidden(
                f"This needs a key with the scope {scope!r}; yours has {', '.join(sorted(self.scopes)) or 'none'}.",
                needed=scope,
            )


def caller_of(scope: ASGIScope) -> Caller | None:
    """Return who makes a request; None before the guard has authenticated it, and where it needs no key."""
    return scope.get(_CALLER)


def keep_caller(scope: ASGIScope, caller: Caller) -> None:
    """Note who makes a request, for its route."""
    scope[_CALLER] = caller


class _KeyCheck(SecurityBase):
    """The dependency itself; as a security scheme, so that the OpenAPI document names it.

    The guard authenticated the caller before the route was chosen; here are its scopes compared, and the changes of the
    request become its own in the audit log.
    """

    def __init__(self, *, audited: bool) -> None:
        self._audited = audited
        self.model = HTTPBearerModel(description="An API key, `nova_…`. `nova keys create` makes one.")
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request, needed: SecurityScopes) -> Caller:
        caller: Caller = request.scope[_CALLER]
        if "operator" in needed.scopes and caller.may("operator"):
            see_all_tenants()
        for scope in needed.scopes:
            caller.need(scope)  # pyright: ignore[reportArgumentType] - FastAPI types them as plain strings
        if self._audited and request.method not in _READING:
            act_as(caller.actor())
        return caller


_check = _KeyCheck(audited=True)
_check_sender = _KeyCheck(audited=False)

RunsReader = Annotated[Caller, Security(_check, scopes=["runs:read"])]
"""May read threads and runs."""

RunsCaller = Annotated[Caller, Security(_check, scopes=["runs"])]
"""May use threads and runs."""

FeedbackCaller = Annotated[Caller, Security(_check, scopes=["feedback"])]
"""May give feedback on runs as an end user; with the scope `runs` as any other."""

PromptsCaller = Annotated[Caller, Security(_check, scopes=["runs:read", "prompts"])]
"""May read runs, and what models were asked: all of the prompts, and the tools."""

SubmittingCaller = Annotated[Caller, Security(_check_sender, scopes=["runs"])]
"""May use threads and runs, in requests that are sent often and whose record is the run or the order."""

AgentsReader = Annotated[Caller, Security(_check, scopes=["agents:read"])]
"""May read agents."""

AgentsCaller = Annotated[Caller, Security(_check, scopes=["agents"])]
"""May read and change agents."""

WorkspaceReader = Annotated[Caller, Security(_check, scopes=["workspace:read"])]
"""May read what agents and people keep."""

WorkspaceCaller = Annotated[Caller, Security(_check, scopes=["workspace"])]
"""May read and change what agents and people keep: tasks, notes, files, memories, skills, triggers."""

SchedulingCaller = Annotated[Caller, Security(_check, scopes=["runs", "workspace"])]
"""May use threads and runs, and triggers that start them."""

ProjectsReader = Annotated[Caller, Security(_check, scopes=["agents:read", "workspace:read"])]
"""May read all that a project contains: agents, skills and triggers."""

ProjectsCaller = Annotated[Caller, Security(_check, scopes=["agents", "workspace"])]
"""May read and change all that a project contains: agents, skills and triggers."""

SecretsCaller = Annotated[Caller, Security(_check, scopes=["secrets"])]
"""May list, set and delete secrets. The API never returns their values."""

KeysCaller = Annotated[Caller, Security(_check, scopes=["keys"])]
"""May read, create and revoke keys of its tenant."""

ChannelsCaller = Annotated[Caller, Security(_check_sender, scopes=["channels"])]
"""May hold leases. They are renewed every few seconds, which the audit log has not."""

OperatorCaller = Annotated[Caller, Security(_check, scopes=["operator"])]
"""May see and change the whole fleet and all tenants."""

AnyCaller = Annotated[Caller, Security(_check)]
"""Any valid key; the route checks further scopes if the request needs them."""
