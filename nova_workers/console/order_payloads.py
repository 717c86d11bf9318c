"""The payload of a work order in review as a form: its fields are those of the schema of its kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.console.forms import Form
from nova_workers.console.schema_forms import Node, Shape, edited, make_node, read_value, shape_of, split_errors
from nova_workers.console.schema_forms.shapes import LONG_TEXT_CHARS
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.order_policies import PolicyView
from nova_workers.contracts.orders.artifacts import TYPED_PAYLOADS, AiArtifactV1

NAME: Final = "payload"
"""Begins the names of the form's fields, and is that of the field with all of it as JSON."""

_PAGE: Final = 200
_SHORT_CHARS: Final = 80
"""A longer text gets several lines."""


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """A form of a payload.

    Attributes:
        root: None where the schema is not known: then the payload is edited as JSON.
        payload: As it stands.
        errors: By path.
        problem: Why the payload was refused.
        is_edited: Whether the payload is not the proposal's any more.
    """

    root: Node | None
    payload: object
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str | None = None
    is_edited: bool = False

    def read(self, form: Form) -> "PayloadForm":
        """Return this form with what a browser sent, after a button of its rows if one was pressed."""
        assert self.root is not None  # noqa: S101 - without fields a browser sends JSON
        shape, action = self.root.shape, form.given("do")
        reading = read_value(shape, edited(form, action) if action else form, NAME)
        root = make_node(shape, reading.value, NAME)
        errors, rest = split_errors(root, {} if action else reading.errors)
        return PayloadForm(root, reading.value, errors, "; ".join(rest.values()) or None, is_edited=True)

    def refused(self, problem: str) -> "PayloadForm":
        """Return this form with the reason why the API refused it."""
        return replace(self, problem=problem)


async def load_form(client: NovaClient, trace_id: str, artifacts: Sequence[AiArtifactV1]) -> PayloadForm:
    """Return the form of what was proposed for an order in review; without a proposal it is empty."""
    first = artifacts[0].model_dump(mode="json") if artifacts else {"kind": None, "payload": {}}
    payload: object = first["payload"]
    schema = _typed(first["kind"]) or await _schema_of_policy(client, trace_id)
    if schema is None:
        return PayloadForm(None, payload)
    root = make_node(fitted(shape_of(schema), payload), payload, NAME)
    return PayloadForm(None if root.as_json or root.shape.kind != "group" else root, payload)


def fitted(shape: Shape, value: object) -> Shape:
    """Return a shape for this value: a text of any type is no JSON, and a long one has several lines."""
    if shape.kind == "group":
        values = cast(Mapping[str, object], value if isinstance(value, Mapping) else {})
        return replace(shape, fields={key: fitted(part, values.get(key)) for key, part in shape.fields.items()})
    if shape.kind == "json" and isinstance(value, str):
        shape = replace(shape, kind="text", schema={"type": "string"})
    if shape.kind == "text" and isinstance(value, str) and (len(value) > _SHORT_CHARS or "\n" in value):
        schema: JsonObject = {**shape.schema, "maxLength": LONG_TEXT_CHARS + 1}
        shape = replace(shape, schema={key: part for key, part in schema.items() if key != "pattern"})
    return shape


async def _schema_of_policy(client: NovaClient, trace_id: str) -> JsonObject | None:
    """Return the schema of an order's payload, as its policy has it; None if the key may not read that."""
    in_review = await if_allowed(client.work_orders.list(state="review", limit=_PAGE), None)
    order = next((each for each in in_review.items if each.trace_id == trace_id), None) if in_review else None
    if order is None:
        return None
    policies = client.work_order_policies
    policy = await if_allowed(policies.get(order.policy_id, version=order.policy_version), None)
    return None if policy is None else _produced(policy)


def _produced(policy: PolicyView) -> JsonObject | None:
    kind = policy.document.get("produces")
    own = cast(Mapping[str, JsonObject], policy.document.get("artifactKinds") or {})
    return _typed(kind) or own.get(str(kind))


def _typed(kind: object) -> JsonObject | None:
    model = TYPED_PAYLOADS.get(str(kind))
    return None if model is None else model.model_json_schema(by_alias=True)
