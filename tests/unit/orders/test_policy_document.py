"""A policy document is checked as a whole, and its templates are filled in one pass."""

from typing import Any

import pytest
from pydantic import ValidationError

from nova_workers.base.validation import place_of, problem_of
from nova_workers.contracts.orders import PolicyDocument, PromptTemplate

MODEL = {"engine": "scripted", "model": "small", "provider": "local"}
CRAFT = {"name": "craft", "kind": "craft", "models": [MODEL], "prompt": {"user": "{{inputs}}"}}
POLICY: dict[str, Any] = {
    "id": "plain",
    "version": "1",
    "produces": "copy_proposal_v1",
    "roles": [CRAFT],
    "caps": {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 10_000, "timeoutMs": 30_000},
    "presentation": {"modes": ["single_best"], "default": "single_best"},
}


def _problem(**changes: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as refused:
        PolicyDocument.from_wire(POLICY | changes)
    (item,) = refused.value.errors()
    return place_of(item), problem_of(item, PolicyDocument)


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"roles": [CRAFT, CRAFT]}, "", "'craft' is there twice"),
        ({"roles": [{**CRAFT, "kind": "review"}]}, "", "nothing would be proposed"),
        (
            {"roles": [CRAFT, {**CRAFT, "name": "a", "kind": "general"}, {**CRAFT, "name": "b", "kind": "general"}]},
            "",
            "there can be one",
        ),
        ({"roles": [CRAFT, {**CRAFT, "name": "critic", "kind": "review", "candidates": 2}]}, "", "several candidates"),
        ({"roles": [{**CRAFT, "prompt": {"user": "{{secrets}}"}}]}, "roles.0.prompt", "no prompt field 'secrets'"),
        ({"roles": [{**CRAFT, "models": []}]}, "roles.0.models", "at least 1"),
        ({"produces": "design_brief_v1"}, "", "artifactKinds has no schema"),
        ({"artifactKinds": {"copy_proposal_v1": {}}}, "", "cannot get another schema"),
        ({"presentation": {"modes": ["ranked"], "default": "single_best"}}, "presentation", "not one of its modes"),
        ({"onTier": {}}, "onTier", "no such field"),
    ],
)
def test_an_inconsistent_policy_is_refused_with_the_reason(changes: dict[str, Any], place: str, words: str) -> None:
    found_place, found_words = _problem(**changes)
    assert found_place == place
    assert words in found_words


def test_a_policy_is_read_and_written_without_a_change() -> None:
    policy = PolicyDocument.from_wire(POLICY)
    assert PolicyDocument.from_wire(policy.to_wire()) == policy
    assert [role.name for role in policy.roles_of("craft")] == ["craft"]
    assert policy.general is None


def test_the_schema_of_payloads_is_the_contracts_or_the_policys() -> None:
    assert set(PolicyDocument.from_wire(POLICY).payload_schema()["required"]) >= {"targetKey", "value", "confidence"}
    brief = {"type": "object", "required": ["colour"]}
    kinds = {"produces": "design_brief_v1", "artifactKinds": {"design_brief_v1": brief}}
    own = PolicyDocument.from_wire(POLICY | kinds)
    assert own.payload_schema() == brief


def test_what_a_template_inserts_is_not_read_as_a_template() -> None:
    template = PromptTemplate(system="Kind: {{ kind }}", user="{{inputs}} {{critiques}}")
    assert template.render({"inputs": "{{kind}}", "kind": "a"}) == ("Kind: a", "{{kind}} ")
