"""The HTTP contract of leases: one process of several does a client's work, and the next one continues it."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from nova_workers.contracts.bodies import Body, Name, OneLine, View

LEASE_NAME_PATTERN = r"^[a-z0-9][a-z0-9._:-]{0,99}$"


MAX_PAUSE_S = 86_400
"""The longest pause that a holder reports."""


class LeasePause(Body):
    """Why a holder pauses, for people."""

    error: Annotated[OneLine, StringConstraints(min_length=1, max_length=500)]
    next_try_s: Annotated[float, Field(ge=0, le=MAX_PAUSE_S)]
    """Seconds until it tries again."""


class LeaseRequest(Body):
    """Acquires a lease; with its token, renews or releases it."""

    holder: Name
    """Describes the process, for people. Acquiring again under the same name is another acquisition."""
    ttl_s: Annotated[float, Field(ge=0, le=600)]
    """The lease expires this long after the request, in seconds; with a token, 0 releases it."""
    token: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    """The token of the acquisition, to renew or release it. Without it, the request acquires the lease."""
    state: dict[str, Any] | None = None
    """The state that the next holder continues from; it needs a token. Null keeps the state as it is."""
    pause: LeasePause | None = None
    """Why the holder pauses after failures. Null: it works."""

    @model_validator(mode="after")
    def _needs_a_token(self) -> Self:
        if self.token is None and (self.state is not None or self.ttl_s == 0):
            raise ValueError("state, and a ttl_s of 0, are for the holder of the lease; give its token too")
        return self


class LeaseView(View):
    """A lease that the caller holds, or has just released."""

    name: str
    holder: str
    fence: int
    """Grows with each acquisition."""
    token: str | None = None
    """Proves that a request is the holder's. Only in the answer to the acquisition; the next one makes it invalid."""
    state: dict[str, Any]
    expires_at: datetime
    retry_requested_at: datetime | None = None
    """When a person last asked the holder to end its pause and try at once."""
