"""The one error tree. The branch says who acts on the error, and how.

::

    NovaError
    ├── Rejected            the caller must change the request (HTTP 4xx)
    │   ├── InvalidInput        a field is malformed
    │   ├── Unauthenticated     no key, or a key that is not known
    │   ├── Forbidden           the key lacks a scope
    │   ├── NotFound            no such thing in this tenant
    │   ├── Gone                it was deleted
    │   ├── Conflict            the state does not allow it
    │   │   ├── ThreadBusy          on_busy = reject and a run is active
    │   │   ├── IdempotencyMismatch the same key came with another body
    │   │   ├── VersionMismatch     it was changed since the version that the caller names
    │   │   └── IllegalTransition   the run is past the state that the request needs
    │   ├── LimitExceeded       a size or count is over its bound, until something is deleted or the bound changes
    │   └── TooManyRequests     a rate is over its bound; later it is not
    ├── Unavailable         try again later (HTTP 503); nothing was half-written
    ├── Unstorable          the database refuses a value: a defect, and trying again meets it again (HTTP 500)
    ├── RunLost             this worker no longer owns the run: stop at once, write nothing
    ├── ToolFailure         tell the model; the turn goes on
    ├── OutboundFailed      a request to an outside server; `refused` says whether it was never sent
    ├── DeliveryFailed      a channel did not hand something over; `retryable` says whether to try again
    ├── EngineFailure       the turn failed; `retryable` says whether trying again can help
    ├── OrchestrationError  agents of an orchestration cannot do what one of them, or a person, asked for
    │   ├── ProviderNotAvailableError  the fleet does not have the provider, its engine or its profile
    │   └── ModelNotAvailableError     no model fits: unknown, not permitted, or of a provider that is not available
    └── ConfigurationError  the operator must act; the process refuses to start
"""

from typing import Literal

__all__ = [
    "ConfigurationError",
    "Conflict",
    "DeliveryFailed",
    "EngineErrorKind",
    "EngineFailure",
    "Forbidden",
    "Gone",
    "IdempotencyMismatch",
    "IllegalTransition",
    "InvalidInput",
    "LimitExceeded",
    "ModelNotAvailableError",
    "NotFound",
    "NovaError",
    "OrchestrationError",
    "OutboundFailed",
    "ProviderNotAvailableError",
    "Rejected",
    "RunLost",
    "ThreadBusy",
    "TooManyRequests",
    "ToolFailure",
    "Unauthenticated",
    "Unavailable",
    "Unstorable",
    "VersionMismatch",
]

EngineErrorKind = Literal[
    "context_overflow",
    "auth_failure",
    "rate_limit",
    "model_error",
    "timeout",
    "compaction_failure",
    "worker_lost",
    "budget_exceeded",
    "unknown",
]


class NovaError(Exception):
    """Base of every error that this system raises on purpose.

    Attributes:
        code: A stable slug for programs, such as ``thread_busy``.
        fields: The values that the message quotes, for logs and problem documents.
    """

    code = "nova_error"

    def __init__(self, message: str, /, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class Rejected(NovaError):
    """The request is refused whole; the caller must change it."""

    code = "rejected"


class InvalidInput(Rejected):
    """A field has the wrong form. ``fields['field']`` names it."""

    code = "invalid_input"


class Unauthenticated(Rejected):
    """The request carries no key, or one that is unknown, revoked or expired."""

    code = "unauthenticated"


class Forbidden(Rejected):
    """The key is good but lacks the scope."""

    code = "forbidden"


class NotFound(Rejected):
    """No such thing in this tenant. Another tenant's id looks exactly the same."""

    code = "not_found"


class Gone(Rejected):
    """The thing existed in this tenant and was deleted."""

    code = "gone"


class Conflict(Rejected):
    """The request is well formed, but the present state does not allow it."""

    code = "conflict"


class ThreadBusy(Conflict):
    """``on_busy = reject`` met an active run. ``fields['active_run_id']`` names it."""

    code = "thread_busy"


class IdempotencyMismatch(Conflict):
    """An Idempotency-Key came again within its life with another body."""

    code = "idempotency_mismatch"


class VersionMismatch(Conflict):
    """The thing was changed since the version that the caller expects. Read it again, then decide."""

    code = "version_mismatch"


class IllegalTransition(Conflict):
    """The run is not in a state from which the request can start."""

    code = "illegal_transition"


class LimitExceeded(Rejected):
    """A size or a count is over its bound. The same request fails again until something is deleted."""

    code = "limit_exceeded"


class TooManyRequests(Rejected):
    """A rate, or a count of what ends by itself, is over its bound. The same request may succeed later."""

    code = "too_many_requests"


class Unavailable(NovaError):
    """A server that we need does not answer. Nothing was half-written; the message says if it may have been written."""

    code = "unavailable"


class Unstorable(NovaError):
    """The database refuses a value of the statement. Nothing was written, and the same statement fails again."""

    code = "unstorable"


class RunLost(NovaError):
    """A guarded write matched no row: the run is no longer this worker's.

    The only right reaction is to stop: no event, no write, no retry. The new owner of the run continues
    from the last committed step.
    """

    code = "run_lost"


class ToolFailure(NovaError):
    """A tool could not do what the model asked. The message goes to the model as an error result."""

    code = "tool_failure"


class OutboundFailed(NovaError):
    """A request to an outside server failed.

    Attributes:
        refused: Whether our own guard refused it: trying again cannot help.
    """

    code = "outbound_failed"

    def __init__(self, message: str, /, *, refused: bool, **fields: object) -> None:
        super().__init__(message, **fields)
        self.refused = refused


class DeliveryFailed(NovaError):
    """A channel did not hand something over.

    Attributes:
        retryable: Whether another try can help.
        response_status: The HTTP status that the receiver answered, if it did.
        retry_after_s: The receiver asks not to be tried before, in seconds.
        unwanted: The receiver says that it wants nothing any more.
    """

    code = "delivery_failed"

    def __init__(
        self,
        message: str,
        /,
        *,
        retryable: bool,
        response_status: int | None = None,
        retry_after_s: float | None = None,
        unwanted: bool = False,
        **fields: object,
    ) -> None:
        super().__init__(message, **fields)
        self.retryable = retryable
        self.response_status = response_status
        self.retry_after_s = retry_after_s
        self.unwanted = unwanted


class EngineFailure(NovaError):
    """A turn failed inside an engine.

    Attributes:
        kind: What kind of failure, in the vocabulary of the engine contract.
        retryable: Whether the same turn may succeed later.
    """

    code = "engine_failure"

    def __init__(self, message: str, /, *, kind: EngineErrorKind, retryable: bool, **fields: object) -> None:
        super().__init__(message, **fields)
        self.kind: EngineErrorKind = kind
        self.retryable = retryable


class OrchestrationError(NovaError):
    """Agents of an orchestration cannot do what one of them, or a person, asked for."""

    code = "orchestration_error"


class ProviderNotAvailableError(OrchestrationError):
    """The fleet does not have the provider, its engine or its profile."""

    code = "provider_not_available"


class ModelNotAvailableError(OrchestrationError):
    """No model fits: it is unknown, not permitted, too weak, or of a provider that is not available."""

    code = "model_not_available"


class ConfigurationError(NovaError):
    """A setting or the environment is wrong; the message says which and how to fix it."""

    code = "configuration_error"
