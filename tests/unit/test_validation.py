from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nova_workers.base.config import Settings
from nova_workers.base.validation import ACCEPTED_FORMS, known_fields, place_of, problem_of
from nova_workers.contracts.agents import SubagentSpec
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.wire import AgentCreate
from tests.support.data.idle_api import idle_api


def _problems(model: type[BaseModel], value: object) -> dict[str, str]:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(value)
    return {place_of(item): problem_of(item, model) for item in refused.value.errors()}


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        for name, each in value.items():
            # Names of kinds, of which one is called pattern.
            if name != "mapping":
                yield from _patterns(each)
    elif isinstance(value, list):
        for each in value:
            yield from _patterns(each)


def test_every_pattern_of_the_api_and_the_settings_is_described_in_words() -> None:
    used = {
        *_patterns(idle_api().openapi()),
        *_patterns(Settings.model_json_schema()),
        *_patterns(AgentCreate.model_json_schema()),
    }
    assert used - set(ACCEPTED_FORMS) == set()


def test_a_mistyped_field_is_reported_with_the_nearest_and_all_names() -> None:
    problem = _problems(AgentCreate, {"id": "a", "name": "A", "modle": "x"})["modle"]
    assert problem.startswith("there is no such field; did you mean 'model'? The fields are: ")
    assert "capabilities" in problem


def test_a_nested_field_is_looked_up_in_its_own_model() -> None:
    helper = {"description": "d", "prompt": "p", "tols": []}
    found = _problems(AgentCreate, {"id": "a", "name": "A", "subagents": {"one": helper}})
    assert set(found) == {"subagents.one.tols"}
    assert all(name in found["subagents.one.tols"] for name in SubagentSpec.model_fields)
    duty = known_fields(AgentCreate, ("responsibilities", 0, "titel"))
    assert {"title", "content"} <= set(duty)


def test_a_field_of_one_member_of_a_union_is_looked_up_in_it() -> None:
    gate = {"kind": "url", "url": "https://example.org", "changd": True}
    found = _problems(TriggerCreate, {"agent_id": "a", "kind": "interval", "gate": gate})
    problem = next(words for place, words in found.items() if place.endswith("changd"))
    assert "did you mean 'changed'?" in problem
    assert "for_s" not in problem


def test_a_wrong_form_is_described_and_no_regular_expression_is_shown() -> None:
    assert _problems(AgentCreate, {"id": "Bad Id", "name": "A"}) == {
        "id": "it has not the form that it needs; use small letters, digits and hyphens, "
        "and begin with a letter or a digit"
    }
