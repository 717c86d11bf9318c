"""`AiWorkResultV1`: what an order gets, always: also an invalid one."""

from typing import Annotated, Literal

from pydantic import Field

from nova_workers.base.vocabulary import OutageReason, WorkStatus
from nova_workers.contracts.orders.artifacts import AiArtifactV1
from nova_workers.contracts.orders.stop_reasons import StopReasonV1
from nova_workers.contracts.orders.wire import OpenValue, WireValue

_Count = Annotated[int, Field(ge=0)]
_Usd = Annotated[float, Field(ge=0)]


class SpecialistMeta(OpenValue):
    """One specialist of a swarm: a role with its model."""

    role: str
    model: str | None = None
    stop_reason: StopReasonV1
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None


class SwarmMeta(OpenValue):
    """What a swarm did."""

    field_general_model: str | None = None
    specialists: list[SpecialistMeta]
    swirls: _Count


class ExecutionMeta(OpenValue):
    """Figures of the execution."""

    cached: bool
    attempt_count: _Count
    rounds: _Count
    calls: _Count
    models: list[str]
    estimated_usd: _Usd
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    request_ids: list[str] | None = None


class CostShare(OpenValue):
    """Calls and cost of one model or provider."""

    calls: _Count
    cost_usd: _Usd


class CostBreakdown(OpenValue):
    """Cost by model and provider. Internal: no customer gets it."""

    by_model: dict[str, CostShare]
    by_provider: dict[str, CostShare]
    total: _Usd


class OrderProblem(OpenValue):
    """What is wrong with one field of an order, without any of its content."""

    path: str
    """Names of fields, joined by dots; empty for the whole order. Names that the contract lacks are replaced by `*`."""
    rule: str
    """What the field needs."""


class OrderWait(OpenValue):
    """A running order waits: a model provider cannot be used now. Its time goes on; all but the figures is internal."""

    waited_ms: _Count
    next_try_in_ms: _Count | None = None
    reason: OutageReason | None = None
    provider: str | None = None
    message: str | None = None
    advice: str | None = None
    """What an operator can do."""

    @property
    def line(self) -> str:
        """All of it in one line, for people."""
        why = f"{self.message} {self.advice or ''}" if self.message else "A model provider cannot be used."
        again = "" if self.next_try_in_ms is None else f" Next try in {self.next_try_in_ms / 1000:.0f} s."
        return f"{why.rstrip()} It has waited {self.waited_ms / 1000:.0f} s.{again}"


class ResultExtensions(OpenValue):
    """What a result may contain beside its core."""

    swarm: SwarmMeta | None = None
    alternatives: list[AiArtifactV1] | None = None
    cost_breakdown: CostBreakdown | None = None
    meta: ExecutionMeta | None = None
    message: str | None = None
    """For the customer, where an internal stop reason was mapped to ``needs_human``."""
    waiting: OrderWait | None = None
    """The reason for which an order with ``in_progress`` waits."""
    problems: list[OrderProblem] | None = None
    """Every field that is wrong, with ``invalid_request``."""


class AiWorkResultV1(WireValue):
    """The result of an order."""

    version: Literal["v1"]
    status: WorkStatus
    stop_reason: StopReasonV1
    needs_human: bool
    trace_id: str
    artifacts: list[AiArtifactV1]
    customer_safe: Literal[True]
    """The result passed the checker of customer-safe results; what does not pass is not returned."""
    extensions: ResultExtensions | None = None
