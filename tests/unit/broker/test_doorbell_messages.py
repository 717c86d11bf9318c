"""A doorbell is the message that the installed Celery would send for the same call."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from nova_workers.base.keys import broker_queue
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.encoding import DoorbellEncoder
from nova_workers.broker.messages import DoorbellBody, DoorbellHeaders, unreadable
from nova_workers.broker.task_names import TASK_DELIVER, TASK_RUN_AGENT, TASK_RUN_EFFECTS

_RUN = {"run_id": "run_01JXYZABCDEFGHJKMNPQRSTVWX", "thread_id": "thr_01JXYZABCDEFGHJKMNPQRSTVWX"}
_CALLS = [
    (TASK_RUN_AGENT, "interactive", _RUN),
    (TASK_RUN_AGENT, "background.acme", _RUN),
    (TASK_RUN_EFFECTS, "effects", {}),
    (TASK_DELIVER, "effects", {}),
]


@pytest.mark.parametrize(("task", "queue", "arguments"), _CALLS)
async def test_a_doorbell_has_the_fields_and_values_of_celerys_own_message(
    redis: Redis, redis_url: str, task: str, queue: str, arguments: dict[str, str]
) -> None:
    celery = build_celery(redis_url, fail_fast=True, consumed=(queue,))
    celery.send_task(task, kwargs=arguments, queue=queue, ignore_result=True)
    celery.close()
    (theirs,) = cast(list[bytes], await redis.lrange(broker_queue(queue), 0, -1))
    ours = DoorbellEncoder().encode(task, queue, arguments)
    assert _without_ids(ours) == _without_ids(theirs)
    assert base64.b64decode(json.loads(ours)["body"]) == base64.b64decode(json.loads(theirs)["body"])


@pytest.mark.parametrize(("task", "queue", "arguments"), _CALLS)
def test_a_doorbell_has_the_form_that_workers_execute(task: str, queue: str, arguments: dict[str, str]) -> None:
    raw = DoorbellEncoder().encode(task, queue, arguments)
    assert unreadable(raw) is None
    message = json.loads(raw)
    assert DoorbellHeaders.model_validate(message["headers"]).task == task
    assert DoorbellBody.validate_json(base64.b64decode(message["body"]))[1] == arguments


def test_each_doorbell_has_an_id_of_its_own() -> None:
    encoder = DoorbellEncoder()
    first, second = (json.loads(encoder.encode(*_CALLS[0]))["headers"]["id"] for _ in range(2))
    assert first != second


def _without_ids(raw: bytes) -> dict[str, Any]:
    """Return a message with names in place of its ids, of which equal ones have one name."""
    message = json.loads(raw)
    headers, properties = message["headers"], message["properties"]
    for holder, name in ((headers, "id"), (properties, "delivery_tag"), (properties, "reply_to")):
        assert str(uuid.UUID(holder[name])) == holder[name]
    names = {properties["reply_to"]: "the sender's", properties["delivery_tag"]: "a tag", headers["id"]: "the task's"}
    headers.update({name: names[headers[name]] for name in ("id", "root_id")})
    properties.update({name: names[properties[name]] for name in ("correlation_id", "reply_to")})
    assert properties.pop("delivery_tag")
    return message
