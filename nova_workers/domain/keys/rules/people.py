"""People of a provider of single sign-on: which tenant and role they get, and the keys of their sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, get_args

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import OidcSettings, RoleGrant
from nova_workers.base.deferred import Deferred
from nova_workers.base.errors import Forbidden, NotFound, TenantChoice, missing
from nova_workers.base.vocabulary import AccessRole
from nova_workers.contracts.http.keys import PersonSignIn, PersonSignInCreate, SingleSignOnView, TenantRole
from nova_workers.contracts.http.scopes import ROLES
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.keys.sql import people as ledger
from nova_workers.domain.keys.sql.keys import create_key, identify_key
from nova_workers.domain.keys.sql.sign_ins import begin_sign_in
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import all_tenants, see_tenant

_BY_RANK: Final[tuple[AccessRole, ...]] = get_args(AccessRole)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as a verified token names it.

    Attributes:
        subject: The provider's id of the person, which never becomes another person's.
        email: None if the token has none.
        is_verified: Whether the provider has verified the address.
    """

    issuer: str
    subject: str
    email: str | None
    is_verified: bool
    name: str | None
    groups: frozenset[str]

    @property
    def shown(self) -> str:
        """What people know the person by."""
        return self.email or self.name or self.subject


class IdTokenVerifier(Protocol):
    """Checks ID tokens."""

    async def verify(self, token: str, nonce: str | None) -> Identity:
        """Return whose token it is.

        Raises:
            Unauthenticated: It is not valid, or of another request.
            Unavailable: The provider's keys cannot be read.
        """
        ...


def roles_of(identity: Identity, grants: Sequence[RoleGrant]) -> dict[str, AccessRole]:
    """Return a person's highest role in each tenant in which a rule gives one, in the order of the rules."""
    fitting = [grant for grant in grants if _fits(identity, grant)]
    return {
        tenant_id: _highest(grant.role for grant in fitting if grant.tenant == tenant_id)
        for tenant_id in dict.fromkeys(grant.tenant for grant in fitting)
    }


class People:
    """Signs people in with tokens of the provider."""

    def __init__(
        self, database: Database, clock: Clock, settings: OidcSettings, verifier: Deferred[IdTokenVerifier]
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._verifier = verifier

    def provider(self) -> SingleSignOnView:
        """Return the provider as clients need it.

        Raises:
            NotFound: The fleet has no single sign-on.
        """
        settings = self._settings
        if settings.issuer is None:
            raise _no_single_sign_on()
        return SingleSignOnView(
            issuer=settings.issuer, name=settings.name, client_id=settings.device_client_id, scopes=settings.scopes
        )

    async def sign_in(self, body: PersonSignInCreate, *, address: str | None) -> PersonSignIn:
        """Begin a session of a person, with a key of its own that ends with it.

        Raises:
            NotFound: The fleet has no single sign-on.
            Unauthenticated: The token is not valid.
            Forbidden: No rule gives the person a role, or none in the tenant that it chose, or that does not exist.
            TenantChoice: The person has roles in several tenants, and chose none.
            Unavailable: The provider's keys cannot be read.
        """
        if self._settings.issuer is None:
            raise _no_single_sign_on()
        identity = await (await self._verifier.get()).verify(body.id_token, body.nonce)
        roles = roles_of(identity, self._settings.grants)
        if not roles:
            _log.warning("oidc.person_without_role", subject=identity.subject, email=identity.email)
            raise Forbidden(
                f"{identity.shown!r} has no role here. An operator gives one with NOVA_OIDC__GRANTS, by a group, an "
                "e-mail address that the provider has verified, or the subject "
                f"{identity.subject!r}.",
                subject=identity.subject,
            )
        tenant_id = await self._tenant(roles, body.tenant_id)
        role = roles[tenant_id]
        see_tenant(tenant_id)
        # Without an actor: what the person does is recorded below, once its id is known.
        async with self._database.connection() as connection:
            await ledger.delete_ended_keys(connection, tenant_id)
            person_id = await ledger.keep_person(
                connection,
                tenant_id,
                issuer=identity.issuer,
                subject=identity.subject,
                email=identity.email,
                name=identity.name,
            )
        if person_id is None:
            raise Forbidden(f"The tenant {tenant_id!r} of your role does not exist.", tenant_id=tenant_id)
        with acting_as(Actor("person", person_id, tenant_id, name=identity.shown, address=address)):
            return await self._begin(identity, tenant_id, role, person_id, idle_s=body.idle_s)

    async def _tenant(self, roles: Mapping[str, AccessRole], chosen: str | None) -> str:
        """Return the tenant of a session: the one that the person chose, else the only one."""
        if chosen is not None:
            if chosen not in roles:
                raise Forbidden(f"No rule gives you a role in the tenant {chosen!r}.", tenant_id=chosen)
            return chosen
        with all_tenants():
            async with self._database.connection() as connection:
                names = await ledger.find_tenants(connection, roles)
        choices = [
            TenantRole(tenant_id=tenant_id, name=names[tenant_id], role=role)
            for tenant_id, role in roles.items()
            if tenant_id in names
        ]
        if len(choices) > 1:
            raise TenantChoice(
                "You have roles in several tenants, and a session belongs to one: choose it with tenant_id.",
                tenants=[choice.model_dump() for choice in choices],
            )
        # Without any, the refusal names the tenant of the first rule.
        return choices[0].tenant_id if choices else next(iter(roles))

    async def _begin(
        self, identity: Identity, tenant_id: str, role: AccessRole, person_id: str, *, idle_s: int
    ) -> PersonSignIn:
        async with self._database.transaction() as connection:
            key = await create_key(
                connection,
                tenant_id,
                name=identity.shown,
                scopes=ROLES[role],
                expires_at=self._clock.now() + timedelta(seconds=self._settings.session_s),
                role=role,
                person_id=person_id,
            )
            session_id = await begin_sign_in(connection, tenant_id, key.id, idle_s=idle_s)
            await record_act(connection, "person.signed_in", "person", person_id, {"role": role})
            who = await identify_key(connection, tenant_id, key.id)
        return PersonSignIn(**who.model_dump(), session_id=session_id, key=key.key)


def _no_single_sign_on() -> NotFound:
    return missing("single_sign_on", "oidc", "The operator sets NOVA_OIDC__ISSUER and NOVA_OIDC__CLIENT_ID.")


def _highest(roles: Iterable[AccessRole]) -> AccessRole:
    return max(roles, key=_BY_RANK.index)


def _fits(identity: Identity, grant: RoleGrant) -> bool:
    if identity.subject in grant.subjects or not identity.groups.isdisjoint(grant.groups):
        return True
    if identity.email is None or not identity.is_verified:
        return False
    email = identity.email.casefold()
    domain = f"@{email.rpartition('@')[2]}"
    return any(named.casefold() in (email, domain) for named in grant.emails)
