"""The answer of a role that reviews proposals. Internal: no customer gets it."""

from typing import Annotated

from pydantic import Field

from nova_workers.contracts.orders.wire import WireValue


class Critique(WireValue):
    """A verdict on the proposals of a round."""

    approve: bool
    """Whether the best of them may be returned as it is."""
    best: Annotated[int, Field(ge=0)]
    """The index of the best proposal."""
    confidence: Annotated[float, Field(ge=0, le=1)]
    issues: list[str]
    """What has to change."""
