"""Who is asking, and whether they may: the dependency that every route of ``/v1`` has."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from api.state import state_of
from nova_workers.contracts.wire import Scope
from nova_workers.errors import Forbidden, Unauthenticated

__all__ = ["AgentsCaller", "AnyCaller", "Caller", "KeysCaller", "RunsCaller"]

_bearer = HTTPBearer(auto_error=False, description="An API key, `nova_…`. `nova keys create` makes one.")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking. Every query is bound to `tenant_id`."""

    key_id: str
    tenant_id: str
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Whether the key has a scope."""
        return scope in self.scopes

    def need(self, scope: Scope) -> None:
        """Refuse unless the key has a scope.

        Raises:
            Forbidden: It lacks it.
        """
        if scope not in self.scopes:
            raise Forbidden(
                f"This needs a key with the scope {scope!r}; yours has {', '.join(sorted(self.scopes)) or 'none'}.",
                needed=scope,
            )


async def _authenticate(
    request: Request,
    needed: SecurityScopes,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Caller:
    if credentials is None:
        raise Unauthenticated("The request carries no API key. Send it as `Authorization: Bearer nova_…`.")
    key = await state_of(request).keys.find(credentials.credentials)
    if key is None:
        raise Unauthenticated("The API key is not known, was revoked or has expired. `nova keys create` makes one.")
    caller = Caller(key_id=key.key_id, tenant_id=key.tenant_id, scopes=frozenset(key.scopes))
    for scope in needed.scopes:
        caller.need(scope)  # pyright: ignore[reportArgumentType] - FastAPI types them as plain strings
    return caller


RunsCaller = Annotated[Caller, Security(_authenticate, scopes=["runs"])]
"""May use threads and runs."""

AgentsCaller = Annotated[Caller, Security(_authenticate, scopes=["agents"])]
"""May read and change agents."""

KeysCaller = Annotated[Caller, Security(_authenticate, scopes=["keys"])]
"""May read, make and revoke keys of its tenant."""

AnyCaller = Annotated[Caller, Security(_authenticate)]
"""Any good key; the route asks for more where the request needs it."""
