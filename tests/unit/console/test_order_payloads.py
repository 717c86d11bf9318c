"""The form of a work order's payload: each field as its value needs it."""

from __future__ import annotations

from nova_workers.console.order_payloads import fitted
from nova_workers.console.schema_forms import shape_of
from nova_workers.console.schema_forms.shapes import label_of
from nova_workers.contracts.orders.artifacts import CopyProposal

_SHAPE = shape_of(CopyProposal.model_json_schema(by_alias=True))


def test_a_text_that_may_be_of_any_type_is_edited_as_text_and_in_lines_where_it_is_long() -> None:
    proposed = fitted(_SHAPE, {"value": "Short", "rationale": "word " * 20})
    assert {name: (part.kind, part.is_long) for name, part in proposed.fields.items()} == {
        "targetKey": ("text", False),
        "value": ("text", False),
        "rationale": ("text", True),
        "confidence": ("number", False),
        "risks": ("lines", False),
        "assumptions": ("lines", False),
    }
    assert fitted(_SHAPE, {"value": "two\nlines"}).fields["value"].is_long
    assert fitted(_SHAPE, {"value": {"title": "structured"}}).fields["value"].kind == "json"
    assert fitted(_SHAPE, "no object").fields["value"].kind == "json"


def test_names_of_properties_are_words_in_either_form() -> None:
    names = ("targetKey", "sub_title", "ctaURL", "max_cost_usd", "maxCostUsd", "title")
    expected = ["Target key", "Sub title", "Cta URL", "Max cost (USD)", "Max cost (USD)", "Title"]
    assert [label_of(name) for name in names] == expected
