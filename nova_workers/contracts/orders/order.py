"""`AiWorkOrderV1`: a request to execute AI work. The core is frozen; everything new is an extension."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders.wire import GIVEN, Identifier, OpenValue, WireValue

DEFAULT_TTL_HOURS = 24.0
_DAY_MS = 86_400_000


class EngineConstraints(WireValue):
    """Limits of the execution. Without a field, and above the policy's cap, the policy's cap applies."""

    max_rounds: Annotated[Annotated[int, Field(ge=1, le=6)] | None, GIVEN] = None
    cost_cap_usd: Annotated[Annotated[float, Field(gt=0, le=1_000_000)] | None, GIVEN] = None
    max_tokens_total: Annotated[Annotated[int, Field(ge=1, le=10**9)] | None, GIVEN] = None
    timeout_ms: Annotated[Annotated[int, Field(ge=1, le=_DAY_MS)] | None, GIVEN] = None


class IdempotencyConfig(WireValue):
    """Which orders are equal, and for how long a result is returned again."""

    key_hash: Identifier
    """HMAC-SHA256 of the order's canonical form, in hexadecimal, with or without `hmac-sha256:` before it."""
    ttl_hours: Annotated[Annotated[float, Field(gt=0, le=8_784)] | None, GIVEN] = None
    """Default: 24."""


class TraceActor(WireValue):
    """What the order was made for."""

    type: Literal["customer", "system", "admin"]
    id: Annotated[Identifier | None, GIVEN] = None


class EngineTrace(WireValue):
    """References to the caller's own records. They are stored as they are."""

    job_id: Identifier
    step: Annotated[Identifier | None, GIVEN] = None
    request_id: Annotated[Identifier | None, GIVEN] = None
    intake_id: Annotated[Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)] | None, GIVEN] = None
    actor: Annotated[TraceActor | None, GIVEN] = None


class AuditConfig(WireValue):
    """Which trails are recorded."""

    customer_trail_on: bool
    internal_trail_on: bool


class ProviderHints(OpenValue):
    """Preferred providers. The policy decides whether they have an effect."""

    preferred: Annotated[Annotated[list[Identifier], Field(max_length=20)] | None, GIVEN] = None
    allow_fallback: Annotated[bool | None, GIVEN] = None
    """Default: true."""


class OrderExtensions(OpenValue):
    """What an order may contain beside its core. Unknown extensions are ignored."""

    intent_type: Annotated[Identifier | None, GIVEN] = None
    presentation_mode: Annotated[PresentationMode | None, GIVEN] = None
    provider_hints: Annotated[ProviderHints | None, GIVEN] = None
    ui_skin_hints: Annotated[Identifier | None, GIVEN] = None


class AiWorkOrderV1(WireValue):
    """A single AI execution request."""

    version: Literal["v1"]
    tenant: Annotated[str, Field(min_length=1, max_length=200)]
    """The id of the API key's tenant."""
    scope: Identifier
    policy_id: Identifier
    inputs: dict[str, JsonValue]
    """Customer-safe JSON: no raw prompts; text of people as hashes."""
    constraints: EngineConstraints
    idempotency: IdempotencyConfig
    trace: EngineTrace
    audit: AuditConfig
    extensions: Annotated[OrderExtensions | None, GIVEN] = None
