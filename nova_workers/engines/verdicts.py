"""What the errors of a provider mean, for every engine that asks one over the wire."""

from typing import NamedTuple

from nova_workers.engines.resilience import Cause
from nova_workers.errors import EngineErrorKind

__all__ = [
    "FORBIDDEN",
    "INVALID",
    "NO_MODEL",
    "OUT_OF_ORDER",
    "OVERFLOW",
    "RATE_LIMITED",
    "REFUSED",
    "Verdict",
]


class Verdict(NamedTuple):
    """The kind of a failure, whether the same request may succeed later, and what caused it."""

    kind: EngineErrorKind
    retryable: bool
    cause: Cause


REFUSED = Verdict("auth_failure", retryable=False, cause="key")
"""The key is invalid, or its account may not pay."""
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
