"""The one error tree. The branch says who acts on the error, and how.

::

    NovaError
    ├── Rejected            the caller must change the request (HTTP 4xx)
    │   ├── InvalidInput        a field is malformed
    │   ├── Unauthenticated     no key, or a key that is not known
    │   ├── Forbidden           the key lacks a scope
    │   ├── NotFound            no such thing in this tenant
    │   ├── Gone                it was deleted
    │   │   └── AgentRenamed        the id is a former one
    │   ├── Conflict            the state does not allow it
    │   │   ├── ThreadBusy          on_busy = reject and a run is active
    │   │   ├── IdempotencyMismatch the same key came with another body
    │   │   ├── VersionMismatch     it was changed since the version that the caller names
    │   │   ├── TenantChoice        a person who signs in has roles in several tenants
    │   │   ├── IllegalTransition   the run is past the state that the request needs
    │   │   └── OrchestrationError  an orchestration cannot do what an agent or a caller asks
    │   │       ├── AgentSpawnError         an agent cannot be spawned or restarted
    │   │       ├── AgentTimeoutError       an agent, or a wait, exceeded its time
    │   │       ├── MessageRoutingError     a message has no receiver
    │   │       ├── DeadlockDetectedError   the agent was ended to break a cycle of waits
    │   │       ├── MaxDepthExceededError   the new agent would be nested too deeply
    │   │       ├── ExpertNotFoundError     no expert of that id is configured
    │   │       ├── ToolCallTimeoutError    a tool call exceeded its time limit
    │   │       ├── ProviderNotAvailableError   the fleet lacks a model's provider, its engine or its profile
    │   │       └── ModelNotAvailableError  the model is unknown, not permitted here, or does not fit the task
    │   ├── LimitExceeded       a size or count is over its bound, until something is deleted or the bound changes
    │   └── TooManyRequests     a rate is over its bound; later it is not
    ├── Unavailable         try again later (HTTP 503); nothing was written
    │   └── OutcomeUnknown      it may have been written: look before you repeat the request
    ├── Unstorable          the database refuses a value: a defect, and trying again meets it again (HTTP 500)
    ├── RunLost             this worker no longer owns the run: stop at once, write nothing
    ├── ToolFailure         report it to the model; the turn continues
    ├── OutboundFailed      a request to an outside server; `refused` says whether it was never sent
    ├── DeliveryFailed      a channel did not hand something over; `retryable` says whether to try again
    ├── EngineFailure       the turn failed; `retryable` says whether trying again can help
    ├── NewerValue          a later release stored a value with fields that this one would ignore
    └── ConfigurationError  the operator must act; the process refuses to start
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from nova_workers.base.vocabulary import BudgetKind, OutageReason

T = TypeVar("T")

EngineErrorKind = Literal[
    "context_overflow",
    "auth_failure",
    "rate_limit",
    "model_error",
    "timeout",
    "compaction_failure",
    "worker_lost",
    "budget_exceeded",
    "engine_error",
    "nondeterminism",
    "terminated",
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
    """No such thing in this tenant: ``fields['kind']`` and ``fields['id']`` name it (`missing`).

    Another tenant's id looks exactly the same.
    """

    code = "not_found"


class Gone(Rejected):
    """The thing existed in this tenant and was deleted: ``fields['kind']`` and ``fields['id']`` name it (`deleted`)."""

    code = "gone"


class AgentRenamed(Gone):
    """The id is a former one of an agent. ``fields['renamed_to']`` is its id now."""

    code = "agent_renamed"


class Conflict(Rejected):
    """The request is well formed, but the present state does not allow it."""

    code = "conflict"


class ThreadBusy(Conflict):
    """``on_busy = reject`` met an active run. ``fields['active_run_id']`` names it."""

    code = "thread_busy"


class IdempotencyMismatch(Conflict):
    """An Idempotency-Key came again within its life with another body."""

    code = "idempotency_mismatch"


class TenantChoice(Conflict):
    """A person who signs in has roles in several tenants. ``fields['tenants']`` has id, name and role of each."""

    code = "tenant_choice"


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


class OrchestrationError(Conflict):
    """An orchestration cannot do what is asked. The message is for the model that called a tool, or for the caller."""

    code = "orchestration_error"


class AgentSpawnError(OrchestrationError):
    """An agent cannot be spawned or restarted; the message says which limit or state prevents it."""

    code = "agent_spawn_error"


class AgentTimeoutError(OrchestrationError):
    """An agent exceeded its reasoning time, or what it waits for did not come in time."""

    code = "agent_timeout"


class MessageRoutingError(OrchestrationError):
    """A message has no receiver: it ended, was never part of the orchestration, or expects no such message."""

    code = "message_routing_error"


class DeadlockDetectedError(OrchestrationError):
    """Agents waited for each other in a cycle; the deepest of them was ended."""

    code = "deadlock_detected"


class MaxDepthExceededError(OrchestrationError):
    """The agent would be nested deeper than the orchestration permits."""

    code = "max_depth_exceeded"


class ExpertNotFoundError(OrchestrationError):
    """No expert of that id is configured."""

    code = "expert_not_found"


class ToolCallTimeoutError(OrchestrationError):
    """A tool call took longer than the orchestration permits."""

    code = "tool_call_timeout"


class ProviderNotAvailableError(OrchestrationError):
    """The fleet has no engine, program or key for the provider of a model."""

    code = "provider_not_available"


class ModelNotAvailableError(OrchestrationError):
    """The model is unknown, is not permitted for this orchestration, or does not fit the task."""

    code = "model_not_available"


class Unavailable(NovaError):
    """A server that we need does not serve the request. Nothing was written, so the request can be repeated.

    Attributes:
        reason: What is wrong with the server, without what follows from it for the request.
        cause: The words of the server or its driver: hosts, roles, SQL. `str` adds them, for operators and logs; the
            message, which callers read, is without them.
    """

    code = "unavailable"

    def __init__(self, message: str, /, *, reason: str | None = None, cause: str | None = None, **fields: object):
        super().__init__(message, **fields)
        self.reason = message if reason is None else reason
        self.cause = cause

    def __str__(self) -> str:
        return self.message if self.cause is None else f"{self.message} ({self.cause})"


class OutcomeUnknown(Unavailable):
    """A server failed, and the request may have been carried out, wholly or in part.

    ``fields['may_be_written']`` is True. The fields name what to look at: ids such as `run_id`, and `look_up`, the path
    of a GET.
    """

    code = "outcome_unknown"


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


@dataclass(frozen=True, slots=True)
class Outage:
    """A model provider that cannot be used now: a fault of the fleet and not of the conversation.

    Attributes:
        provider: Its name.
        reason: Why.
        profile: The credential profile; None if it is about all or none.
        model: The model, if only this one is affected.
        retry_after_s: How long the provider asks to wait.
    """

    provider: str
    reason: OutageReason
    profile: str | None = None
    model: str | None = None
    retry_after_s: float | None = None


class EngineFailure(NovaError):
    """A turn failed inside an engine.

    Attributes:
        kind: What kind of failure, in the vocabulary of the engine contract.
        retryable: Whether the same turn may succeed later.
        outage: If the cause is that the model provider cannot be used: the run can wait for it.
        budget: If a budget refused the call (``budget_exceeded``): which.
    """

    code = "engine_failure"

    def __init__(
        self,
        message: str,
        /,
        *,
        kind: EngineErrorKind,
        retryable: bool,
        outage: Outage | None = None,
        budget: BudgetKind | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, **fields)
        self.kind: EngineErrorKind = kind
        self.retryable = retryable
        self.outage = outage
        self.budget: BudgetKind | None = budget


class NewerValue(NovaError):
    """A later release stored a value whose fields this release does not know. ``fields['fields']`` names them."""

    code = "newer_value"


class ConfigurationError(NovaError):
    """A setting or the environment is wrong; the message says which and how to fix it."""

    code = "configuration_error"


_SPELT_KINDS = {"key": "API key", "order_policy": "policy", "order_secret": "secret of work orders"}


def missing(kind: str, id_: object, hint: str = "", /, **fields: object) -> NotFound:
    """Return the error that there is no such thing.

    Args:
        kind: What is missing, as problem documents name it: ``run``, ``order_policy``.
        id_: Its id or name, as the caller gave it.
        hint: What to do, as a sentence.
        fields: What else the message quotes; ``field`` is the caller's field with the id.
    """
    text = f"There is no {_SPELT_KINDS.get(kind, kind.replace('_', ' '))} {id_!r}."
    return NotFound(f"{text} {hint}" if hint else text, kind=kind, id=id_, **fields)


def existing(thing: T | None, kind: str, id_: object, hint: str = "", /, **fields: object) -> T:
    """Return a thing that was looked for, such as a row. The other arguments are those of `missing`.

    Raises:
        NotFound: It is None.
    """
    if thing is None:
        raise missing(kind, id_, hint, **fields)
    return thing


def too_many(limit: int, things: str, hint: str) -> LimitExceeded:
    """Return the error that a tenant has as many things as it may. `hint` is a sentence that says what to do."""
    return LimitExceeded(f"There are {limit} {things} already, which is the most. {hint}", limit=limit)


def deleted(kind: str, id_: object, hint: str = "", /, **fields: object) -> Gone:
    """Return the error that a thing was deleted. The arguments are those of `missing`."""
    text = f"{_SPELT_KINDS.get(kind, kind.replace('_', ' ').capitalize())} {id_!r} was deleted."
    return Gone(f"{text} {hint}" if hint else text, kind=kind, id=id_, **fields)


def in_one_line(error: BaseException) -> str:
    """Return the message of an error on one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
