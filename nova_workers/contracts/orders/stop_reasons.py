"""Stop reasons, and what a customer sees of them."""

from collections.abc import Mapping
from typing import Final, NamedTuple, assert_never

from typing_extensions import TypeAliasType

from nova_workers.base.vocabulary import WorkStatus, WorkStopReason

StopReasonV1 = TypeAliasType("StopReasonV1", WorkStopReason)

_REVIEW: Final = "We need to review this manually"
_MAPPED: Final[Mapping[StopReasonV1, str]] = {
    "provider_failed": "Temporary issue, we'll handle it",
    "router_failed": "We're reviewing your request",
    "ajv_failed": _REVIEW,
    "json_parse_failed": _REVIEW,
}
"""Stop reasons that no customer sees, with the message that stands for them; they become ``needs_human``."""


class CustomerStop(NamedTuple):
    """A stop reason as a customer sees it, with a message if another stop reason stands behind it."""

    stop_reason: StopReasonV1
    message: str | None = None


def customer_stop(reason: StopReasonV1) -> CustomerStop:
    """Return a stop reason as a customer sees it."""
    message = _MAPPED.get(reason)
    return CustomerStop(reason) if message is None else CustomerStop("needs_human", message)


def status_of(reason: StopReasonV1) -> WorkStatus:
    """Return the status of a result with this stop reason. An order in review is `in_progress` instead."""
    match reason:
        case "ok":
            return "succeeded"
        case "in_progress":
            return "in_progress"
        case (
            "needs_human"
            | "provider_failed"
            | "router_failed"
            | "ajv_failed"
            | "json_parse_failed"
            | "rate_limited"
            | "cost_cap_exceeded"
            | "round_cap_exceeded"
            | "invalid_request"
        ):
            return "failed"
        case _:
            assert_never(reason)
