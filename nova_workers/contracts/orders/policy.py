"""Policies: documents that say how an order is executed. Code reads these fields only, never a policy's id or tier."""

import re
from typing import Annotated, Any, Final, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from nova_workers.base.vocabulary import PresentationMode, RoleKind
from nova_workers.contracts.authors.rights import BOUND, CEILING_ENGINE, FREE, PARTS, STEERS, authored
from nova_workers.contracts.orders.artifacts import TYPED_PAYLOADS
from nova_workers.contracts.orders.stop_reasons import StopReasonV1
from nova_workers.contracts.orders.wire import Identifier, WireValue

PROMPT_FIELDS: Final = ("inputs", "intent", "candidates", "critiques", "kind", "schema")
"""What a prompt template may contain, written ``{{inputs}}``: the order's inputs and intent; the proposals and the
critiques of them so far; the kind of artifact to make, and its JSON schema. Each is inserted as JSON."""

_PLACEHOLDER = re.compile(r"\{\{\s*(\w*)\s*\}\}")
_MAX_TEMPLATE_CHARS = 50_000

POLICY_ID_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,62}$"
PolicyId = Annotated[str, StringConstraints(pattern=POLICY_ID_PATTERN)]
"""Small letters, digits, _ and -; unique within a tenant."""
_Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Schema = dict[str, JsonValue]
_Confidence = Annotated[float, Field(ge=0, le=1)]


@authored(
    engine=CEILING_ENGINE,
    model=STEERS,
    provider=STEERS,
    capabilities=STEERS,
)
class ModelChoice(WireValue):
    """A model, with the engine that calls it."""

    engine: Annotated[str, Field(min_length=1, max_length=64)]
    model: Annotated[str, Field(min_length=1, max_length=200)]
    """An alias or a full id."""
    provider: Identifier
    """What hints and cost breakdowns call its provider."""
    capabilities: Annotated[list[Identifier], Field(max_length=50)] | None = None
    """What it can do, in the policy's own words; `requiredCapabilities` are compared with them."""


@authored(
    system=STEERS,
    user=STEERS,
)
class PromptTemplate(WireValue):
    """The prompt of a role. ``{{inputs}}`` and its like are replaced by JSON; see `PROMPT_FIELDS`."""

    system: Annotated[str, Field(max_length=_MAX_TEMPLATE_CHARS)] = ""
    user: Annotated[str, Field(min_length=1, max_length=_MAX_TEMPLATE_CHARS)]

    @model_validator(mode="after")
    def _has_known_fields(self) -> Self:
        for text in (self.system, self.user):
            for name in _PLACEHOLDER.findall(text):
                if name not in PROMPT_FIELDS:
                    raise ValueError(f"there is no prompt field {name!r}; the fields are: {', '.join(PROMPT_FIELDS)}")
        return self

    def render(self, values: dict[str, str]) -> tuple[str, str]:
        """Return the system prompt and the message. Fields without a value are empty."""

        def fill(text: str) -> str:
            # In one pass: what is inserted is never read as a template.
            return _PLACEHOLDER.sub(lambda found: values.get(found[1], ""), text)

        return fill(self.system), fill(self.user)


@authored(
    name=STEERS,
    kind=STEERS,
    models=PARTS,
    prompt=PARTS,
    candidates=BOUND,
    max_output_tokens=BOUND,
)
class PolicyRole(WireValue):
    """A role: one model job in each round, or `candidates` of them."""

    name: PolicyId
    kind: RoleKind
    models: Annotated[list[ModelChoice], Field(min_length=1, max_length=20)]
    """The models in order of preference: the first that the fleet has is called, the next if its provider fails."""
    prompt: PromptTemplate
    candidates: Annotated[int, Field(ge=1, le=8)] = 1
    """The proposals that a role which crafts makes in a round."""
    max_output_tokens: Annotated[int, Field(ge=16, le=100_000)] = 2_000
    """The limit of a model call."""


@authored(
    max_rounds=BOUND,
    cost_cap_usd=BOUND,
    max_tokens_total=BOUND,
    timeout_ms=BOUND,
    least_output_tokens=BOUND,
)
class PolicyCaps(WireValue):
    """Limits that no order exceeds. An order's own constraint applies if it is lower."""

    max_rounds: Annotated[int, Field(ge=1, le=6)]
    cost_cap_usd: Annotated[float, Field(gt=0, le=1_000_000)]
    max_tokens_total: Annotated[int, Field(ge=1, le=10**9)]
    timeout_ms: Annotated[int, Field(ge=1, le=86_400_000)]
    least_output_tokens: Annotated[int, Field(ge=1, le=100_000)] = 256
    """A call for which less than this is affordable is not made."""


@authored(
    min_confidence=STEERS,
    min_approvals=STEERS,
)
class PolicySatisfaction(WireValue):
    """When the rounds end before their cap."""

    min_confidence: _Confidence = 0.0
    """The least confidence of the best proposal."""
    min_approvals: Annotated[int, Field(ge=0, le=20)] | None = None
    """Reviews that approve; null is all of them."""


@authored(
    stop_reasons=STEERS,
    below_confidence=STEERS,
    review_hours=BOUND,
)
class PolicyEscalation(WireValue):
    """When a person decides."""

    stop_reasons: list[StopReasonV1] = Field(default_factory=list[StopReasonV1])
    """Stop reasons with which an order goes to review instead of failing."""
    below_confidence: _Confidence = 0.0
    """A final proposal below this goes to review."""
    review_hours: Annotated[float, Field(gt=0, le=8_784)] = 72.0
    """Time for the review; then the order fails."""


@authored(
    modes=STEERS,
    default=STEERS,
    max_alternatives=BOUND,
)
class PolicyPresentation(WireValue):
    """How a result may show its proposals."""

    modes: Annotated[list[PresentationMode], Field(min_length=1, max_length=3)]
    default: PresentationMode
    """The mode of orders that do not ask for one of `modes`."""
    max_alternatives: Annotated[int, Field(ge=1, le=20)] = 3

    @model_validator(mode="after")
    def _allows_its_default(self) -> Self:
        if self.default not in self.modes:
            raise ValueError(f"the default {self.default!r} is not one of its modes")
        return self


@authored(
    swarm=STEERS,
    models=STEERS,
    figures=STEERS,
)
class PolicyVisibility(WireValue):
    """What of its execution a customer sees in the result."""

    swarm: bool = True
    models: bool = True
    figures: bool = True
    """Rounds, calls, tokens and cost."""


@authored(
    id=FREE,
    version=FREE,
    description=FREE,
    tier=FREE,
    required_capabilities=STEERS,
    preferred_provider=STEERS,
    inputs_schema=STEERS,
    produces=STEERS,
    artifact_kinds=STEERS,
    roles=PARTS,
    caps=PARTS,
    satisfied=PARTS,
    escalation=PARTS,
    presentation=PARTS,
    hints_override=STEERS,
    visibility=PARTS,
)
class PolicyDocument(WireValue):
    """A version of a policy."""

    id: PolicyId
    version: _Version
    """Changes with every change of the document; results of other versions are not returned again."""
    description: Annotated[str, Field(max_length=2_000)] = ""
    tier: Annotated[str, Field(max_length=64)] | None = None
    """A label for people. Nothing depends on it."""
    required_capabilities: Annotated[list[Identifier], Field(max_length=50)] = Field(default_factory=list[str])
    """Models without one of these are not called."""
    preferred_provider: Identifier | None = None
    """Models of this provider are called first."""
    inputs_schema: _Schema | None = None
    """JSON schema of the orders' inputs."""
    produces: Identifier
    """The kind of the artifacts."""
    artifact_kinds: Annotated[dict[Identifier, _Schema], Field(max_length=20)] = Field(
        default_factory=dict[str, _Schema]
    )
    """Kinds of this policy with the JSON schemas of their payloads."""
    roles: Annotated[list[PolicyRole], Field(min_length=1, max_length=12)]
    caps: PolicyCaps
    satisfied: PolicySatisfaction = Field(default_factory=PolicySatisfaction)
    escalation: PolicyEscalation = Field(default_factory=PolicyEscalation)
    presentation: PolicyPresentation
    hints_override: bool = False
    """Whether an order's `providerHints` may change the order of models."""
    visibility: PolicyVisibility = Field(default_factory=PolicyVisibility)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [role.name for role in self.roles]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the role {twice[0]!r} is there twice")
        if not self.roles_of("craft"):
            raise ValueError("no role has the kind 'craft', so nothing would be proposed")
        if len(self.roles_of("general")) > 1:
            raise ValueError("two roles have the kind 'general'; there can be one")
        if many := [role.name for role in self.roles if role.candidates > 1 and role.kind != "craft"]:
            raise ValueError(f"the role {many[0]!r} has several candidates, but only roles that craft may")
        for kind in self.artifact_kinds:
            if kind in TYPED_PAYLOADS:
                raise ValueError(f"the kind {kind!r} is part of the contract and cannot get another schema")
        if self.produces not in TYPED_PAYLOADS and self.produces not in self.artifact_kinds:
            raise ValueError(f"it produces {self.produces!r}, for which artifactKinds has no schema")
        return self

    def roles_of(self, kind: RoleKind) -> list[PolicyRole]:
        """Return the roles of a kind, in their order."""
        return [role for role in self.roles if role.kind == kind]

    def eligible(self, role: PolicyRole) -> list[ModelChoice]:
        """Return the models of a role that have every required capability, in their order."""
        needed = set(self.required_capabilities)
        return [model for model in role.models if needed.issubset(model.capabilities or ())]

    def reads(self, field: str) -> bool:
        """Return whether a prompt of it contains a prompt field."""
        texts = (text for role in self.roles for text in (role.prompt.system, role.prompt.user))
        return any(field in _PLACEHOLDER.findall(text) for text in texts)

    @property
    def general(self) -> PolicyRole | None:
        """The role that makes the final proposal, if there is one."""
        return next(iter(self.roles_of("general")), None)

    def payload_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the payloads of its artifacts."""
        typed = TYPED_PAYLOADS.get(self.produces)
        return self.artifact_kinds[self.produces] if typed is None else typed.model_json_schema(by_alias=True)
