"""The HTTP contract of API keys."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from nova_workers.contracts.bodies import Body, Moment, Name, View

Scope = Literal["runs", "prompts", "agents", "trust", "workspace", "secrets", "keys", "channels", "operator"]
"""A permission of a key. `runs`: threads, runs, answers to them, usage. `agents`: agents. `trust`: beside `agents`, to
give an agent more trust or directories. `workspace`: tasks, notes, files, memories, skills, triggers, and exporting
them all. `secrets`: secrets. `keys`: API keys of its tenant. `channels`: leases, by which one process serves a channel.
`operator`: the whole fleet, across tenants (pause, depth, workers, ceilings)."""


class KeyCreate(Body):
    """A new API key."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1)] = Field(default_factory=lambda: ["runs", "agents", "workspace"])
    expires_at: Moment | None = None


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


class KeyCreated(KeyView):
    """A new key with its secret, which is shown only once."""

    key: str


class KeyIdentity(View):
    """The key of the request and its tenant: what a client may do with it."""

    key_id: str
    key_name: str
    prefix: str
    scopes: list[Scope]
    expires_at: datetime | None
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
