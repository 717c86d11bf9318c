"""The HTTP contract of API keys."""

from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, model_validator

from nova_workers.base.errors import TenantChoice
from nova_workers.base.vocabulary import AccessRole
from nova_workers.contracts.bodies import Body, Moment, Name, View
from nova_workers.contracts.http.scopes import ROLES, Scope

MAX_OVERLAP_S: Final = 30 * 86_400
"""Longest time for which a key that was rotated is still valid."""
_MAX_NETWORKS: Final = 64


def _network(text: str) -> str:
    """Return a network as it is stored, such as ``203.0.113.7/32`` for a single address.

    Raises:
        ValueError: It is none, or has bits of a host.
    """
    try:
        network: IPv4Network | IPv6Network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"should be a network such as 10.0.0.0/8 or 2001:db8::/32, or an address: {error}") from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("should be written as IPv4: addresses of IPv4 are compared as such")
    return str(network)


_Network = Annotated[str, StringConstraints(max_length=64), AfterValidator(_network)]


class KeyCreate(Body):
    """A new API key, with scopes or with a role, which names a set of them."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1)] = Field(default_factory=lambda: ["runs", "agents", "workspace"])
    role: AccessRole | None = None
    expires_at: Moment | None = None
    networks: Annotated[tuple[_Network, ...], Field(max_length=_MAX_NETWORKS)] = ()
    """The networks (CIDR) of the clients that may use the key; empty: all. A key that has some is not valid for clients
    without an address, such as those of a Unix socket."""

    @model_validator(mode="after")
    def _check_role(self) -> "KeyCreate":
        if self.role is not None and "scopes" in self.model_fields_set:
            raise ValueError(f"takes scopes or a role, not both: the role {self.role!r} is a set of scopes")
        return self

    def granted(self) -> tuple[Scope, ...]:
        """Return the scopes that the key gets."""
        return tuple(self.scopes) if self.role is None else ROLES[self.role]


class KeyRotate(Body):
    """The replacement of a key by a successor."""

    overlap_s: Annotated[int, Field(strict=True, ge=0, le=MAX_OVERLAP_S)] = 3_600
    """How long the key is still valid, beside its successor; it does not outlive its own expiry. 0 ends it at once."""


class KeyView(View):
    """An API key, without its secret."""

    id: str
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """Exact to a minute; null before the first use."""
    last_used_address: str | None
    """The address of the client that used it then."""
    role: AccessRole | None = None
    """The role that it was made with."""
    networks: tuple[str, ...] = ()
    """The networks of the clients that may use it; empty: all."""
    replaced_by: str | None = None
    """The key that it was rotated to."""


class KeyCreated(KeyView):
    """A new key with its secret, which is shown only once."""

    key: str


class KeyIdentity(View):
    """The key of the request and its tenant: what a client may do with it."""

    key_id: str
    key_name: str
    prefix: str
    scopes: list[Scope]
    role: AccessRole | None = None
    """The role that the key was made with."""
    expires_at: datetime | None
    person_id: str | None = None
    """The person whose session the key is of, after single sign-on."""
    tenant_id: str
    tenant_name: str
    timezone: str
    """The tenant's time zone."""


class SignInCreate(Body):
    """Begins a session of a person."""

    idle_s: Annotated[int, Field(strict=True, ge=60, le=2_592_000)] = 43_200
    """The session ends after this long without a request, in seconds."""


class SignIn(KeyIdentity):
    """The key of a person who signed in, and the session."""

    session_id: str | None = None
    """Sent as `Nova-Session` with the key: such a request is refused once the session has ended. An API of the release
    before has none."""


class SingleSignOnView(View):
    """The fleet's provider of single sign-on, as a client needs it to sign a person in."""

    issuer: str
    name: str
    client_id: str | None
    """The provider's public client of command lines, for the device flow (RFC 8628); null if the fleet has none."""
    scopes: tuple[str, ...]


class PersonSignInCreate(SignInCreate):
    """Begins a session of a person by an ID token of the fleet's provider of single sign-on."""

    id_token: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
    nonce: Annotated[str, StringConstraints(min_length=16, max_length=200)] | None = None
    """The nonce of the request that the token answers; null where it had none."""
    tenant_id: Annotated[str, StringConstraints(min_length=1, max_length=80)] | None = None
    """The tenant of the session, for a person with roles in several; null where there is no choice."""


class TenantRole(View):
    """A tenant in which a person may begin a session, and the role that it would have."""

    tenant_id: str
    name: str
    role: AccessRole


class PersonSignIn(SignIn):
    """A person's session, and the key for it, which is shown only once and ends with the session."""

    key: str


class SignInView(View):
    """A session of a person: at a console with a key, or after single sign-on."""

    id: str
    key_id: str
    name: str
    """The name of the key; after single sign-on the person's e-mail address or name."""
    role: AccessRole | None
    person_id: str | None
    """Null for one who signed in with a key."""
    began_at: datetime
    seen_at: datetime
    """Exact to a minute."""
    idle_s: int
    address: str | None
    """Where the key was last used from."""


def tenants_of(error: TenantChoice) -> tuple[TenantRole, ...]:
    """Return the tenants that a person can choose from, as the API's refusal names them."""
    return TypeAdapter(tuple[TenantRole, ...]).validate_python(error.fields.get("tenants", ()))
