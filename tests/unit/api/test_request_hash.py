"""Requests with one meaning have one hash, however they are spelt: an Idempotency-Key of one replays the other."""

from typing import Any

import pytest

from api.submitting import hash_of
from nova_workers.contracts.bodies import Body
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.tasks import SubtaskCreate, TaskCreate
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.wire import RunCreate, StatelessRunCreate, ThreadCreate

_SENT: list[tuple[type[Body], dict[str, Any]]] = [
    (RunCreate, {"message": "Hello"}),
    (StatelessRunCreate, {"message": "Hello"}),
    (ThreadCreate, {}),
    (TaskCreate, {"title": "Tea", "steps": [{"title": "Boil"}]}),
    (SubtaskCreate, {"title": "Tea"}),
    (TriggerCreate, {"agent_id": "clerk", "kind": "cron", "schedule": "0 9 * * *", "prompt": "Tea"}),
    (KeyCreate, {"name": "laptop"}),
    (OrchestrationCreate, {"task": "Make tea"}),
]


@pytest.mark.parametrize(("model", "sent"), _SENT, ids=[model.__name__ for model, _ in _SENT])
def test_a_default_that_is_spelt_out_equals_one_that_is_left_out(model: type[Body], sent: dict[str, Any]):
    left_out = model.model_validate(sent)
    spelt_out = model.model_validate(left_out.model_dump(mode="json"))
    assert hash_of("/v1/x", spelt_out) == hash_of("/v1/x", left_out)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({}, {"agent_id": "nova"}, True),
        ({}, {"agent_id": "clerk"}, False),
        ({"thread_id": "thr_1"}, {"thread_id": "thr_1", "agent_id": "nova"}, False),
        ({"start_at": "2026-12-01T09:00:00Z"}, {"start_at": "2026-12-01T10:00:00+01:00"}, True),
        ({"start_at": "2026-12-01T09:00:00Z"}, {"start_at": "2026-12-01T09:00:01Z"}, False),
        ({"metadata": {"a": 1, "b": 2}}, {"metadata": {"b": 2, "a": 1}}, True),
        ({"priority": 0}, {"priority": 1}, False),
    ],
)
def test_messages_with_one_meaning_have_one_hash(one: dict[str, Any], other: dict[str, Any], equal: bool):
    first, second = (StatelessRunCreate.model_validate({"message": "Hello", **given}) for given in (one, other))
    assert (hash_of("/v1/runs", first) == hash_of("/v1/runs", second)) is equal
