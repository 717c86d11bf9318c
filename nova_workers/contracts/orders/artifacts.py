"""Artifacts: the typed outputs of an order. A kind has a schema; policies may add kinds of their own."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, JsonValue, Tag, TypeAdapter
from typing_extensions import TypeAliasType

from nova_workers.contracts.orders.wire import Identifier, WireValue

COPY_PROPOSAL: Final = "copy_proposal_v1"

_Texts = list[str]


class CopyProposal(WireValue):
    """A text proposed for one place."""

    target_key: str
    value: str | list[JsonValue] | dict[str, JsonValue]
    rationale: str
    confidence: Annotated[float, Field(ge=0, le=1)]
    risks: _Texts
    assumptions: _Texts


class CopyProposalArtifact(WireValue):
    """A text proposed for one place."""

    kind: Literal["copy_proposal_v1"]
    payload: CopyProposal


class OtherArtifact(WireValue):
    """An artifact of a kind that a policy defines."""

    kind: Annotated[Identifier, Field(json_schema_extra={"not": {"const": COPY_PROPOSAL}})]
    payload: dict[str, JsonValue]


TYPED_PAYLOADS: Final[Mapping[str, type[WireValue]]] = {COPY_PROPOSAL: CopyProposal}
"""Kinds of the contract itself. A policy cannot give them another schema."""


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "typed" if kind == COPY_PROPOSAL else "other"


AiArtifactV1 = TypeAliasType(
    "AiArtifactV1",
    Annotated[
        Annotated[CopyProposalArtifact, Tag("typed")] | Annotated[OtherArtifact, Tag("other")], Discriminator(_tag)
    ],
)


def artifact_of(kind: str, payload: object) -> AiArtifactV1:
    """Return the artifact of a kind with a payload of parsed JSON.

    Raises:
        pydantic.ValidationError: The payload does not fit the kind. For kinds of policies it only has to be an object.
    """
    return _adapter().validate_python({"kind": kind, "payload": payload}, by_alias=True, by_name=False)


@cache
def _adapter() -> TypeAdapter[AiArtifactV1]:
    return TypeAdapter(AiArtifactV1)
