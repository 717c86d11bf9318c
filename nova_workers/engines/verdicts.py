"""What the errors of a provider mean, for every engine that asks one over the wire."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.engines.resilience import AttemptFailed, Cause

__all__ = [
    "BY_STATUS",
    "FORBIDDEN",
    "INVALID",
    "NOT_TAKEN",
    "NO_KEY",
    "NO_MODEL",
    "OUT_OF_ORDER",
    "OVERFLOW",
    "RATE_LIMITED",
    "REFUSED",
    "REFUSING",
    "TOO_LARGE",
    "UNPAID",
    "Verdict",
    "found_in_reading",
    "is_data_defect",
    "of_status",
]


class Verdict(NamedTuple):
    """The kind of a failure, whether the same request may succeed later, and what caused it."""

    kind: EngineErrorKind
    retryable: bool
    cause: Cause


NO_KEY = Verdict("auth_failure", retryable=False, cause="no_key")
"""This worker has no key."""
REFUSED = Verdict("auth_failure", retryable=False, cause="key")
"""The key is invalid."""
UNPAID = Verdict("auth_failure", retryable=False, cause="quota")
"""The key is valid, and its account may not spend more."""
FORBIDDEN = Verdict("auth_failure", retryable=False, cause="key_for_model")
"""The key is valid, but not for this model."""
RATE_LIMITED = Verdict("rate_limit", retryable=True, cause="rate_limit")
"""Too many requests or tokens now."""
OVERFLOW = Verdict("context_overflow", retryable=False, cause="request")
"""The conversation exceeds the model's window."""
OUT_OF_ORDER = Verdict("model_error", retryable=True, cause="transport")
"""The provider fails now."""
NO_MODEL = Verdict("model_error", retryable=False, cause="model")
"""There is no such model."""
INVALID = Verdict("model_error", retryable=False, cause="request")
"""The request is malformed."""

BY_STATUS: Final[Mapping[int, Verdict]] = {
    401: REFUSED,
    402: UNPAID,
    403: FORBIDDEN,
    404: NO_MODEL,
    408: OUT_OF_ORDER,
    409: OUT_OF_ORDER,
    413: OVERFLOW,
    429: RATE_LIMITED,
}
"""HTTP statuses that say more than whose fault it is."""
TOO_LARGE = 413
"""The request has too many bytes for the server or a proxy before it."""
REFUSING = frozenset({400, TOO_LARGE, 422})
"""Statuses with which providers refuse the content of a request. Any other 4xx is about keys, models or limits."""

NOT_TAKEN: Final = re.compile(
    r"unsupported|(?:not|n't) (?:\w+ )?(?:support|accept|allow|permit)|deprecated|unrecognized"
    r"|unknown (?:param|field|arg)|not available|extra inputs",
    re.IGNORECASE,
)
"""How providers say that a model does not take an option."""

_NOT_WRITABLE = "not JSON compliant"
"""The encoder's message for a request with NaN or infinity."""


def of_status(status: int) -> Verdict:
    """Return what an HTTP status means. Where it says nothing more, the provider does not work as it is configured."""
    return BY_STATUS.get(status) or (INVALID if status in REFUSING else OUT_OF_ORDER)


def found_in_reading(failure: EngineFailure) -> EngineFailure:
    """Return the failure for a truncated stream or an invalid response, which we detected ourselves."""
    if isinstance(failure, AttemptFailed) or failure.kind != "model_error" or not failure.retryable:
        return failure
    return AttemptFailed(failure.message, kind=failure.kind, retryable=True, cause=OUT_OF_ORDER.cause)


def is_data_defect(error: Exception) -> bool:
    """Return whether a request cannot be encoded, or a response nests too deep to be parsed: retries cannot help."""
    if isinstance(error, UnicodeEncodeError | RecursionError | OverflowError):
        return True
    return isinstance(error, ValueError) and _NOT_WRITABLE in str(error)
