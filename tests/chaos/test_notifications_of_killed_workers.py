"""Workers and the API die around the changes of a task whose client waits to be notified."""

from __future__ import annotations

import json

import pytest

from nova_workers.contracts.http.wire import AgentCreate
from nova_workers.ledger.database import Database
from tests.integration.api.doors.test_a2a import client_of, said, sent
from tests.integration.delivery.conftest import MASTER_KEY
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.servers.webhook_receiver import Receiver, receiver
from tests.support.waiting import until

pytestmark = [pytest.mark.fleet, pytest.mark.long]

_SCRIPT = {"script": [{"tool": {"name": "ask_user", "input": {"question": "Which?"}}}, {"say": "Done."}]}


@proves("doors.a2a-pushes")
async def test_notifications_survive_the_workers_that_send_them_and_the_api(
    env: dict[str, str], database: Database
) -> None:
    async with receiver() as receiving:
        door = {
            "NOVA_DOORS": '["a2a"]',
            "NOVA_SECRETS__KEYS": json.dumps([MASTER_KEY]),
            "NOVA_DELIVERY__WEBHOOK_ALLOW_HOSTS": json.dumps([receiving.host]),
            "NOVA_DELIVERY__EVERY_S": "1",
            "NOVA_EFFECTS__ENABLED": "true",
        }
        # Neither the question nor the end is confirmed at first.
        receiving.answers["/hook"] = lambda before: None if before in {0, 2} else 204
        async with Fleet({**env, **door}, workers=1, beat=True) as fleet:
            spec = {"id": "painter", "name": "painter", "engine": "scripted", "capabilities": {"user": {}}}
            await fleet.client.agents.create(AgentCreate.model_validate(spec))
            url, key = fleet.api_url, fleet.api_key
            async with client_of(url, key, agent="painter", streaming=False, polling=True) as client:
                request = said(json.dumps(_SCRIPT))
                request.configuration.task_push_notification_config.url = receiving.url("/hook")
                task = await sent(client, request)
                await _replace_the_worker(fleet, receiving, sent_before=1)
                await sent(client, said("red", "m2", task_id=task.id))
            assert fleet.api is not None
            fleet.api.kill()
            await until(lambda: len(receiving.got) == 3, timeout_s=60)
            # A new worker is known to be ready by the API.
            await fleet.start_api()
            await _replace_the_worker(fleet, receiving, sent_before=3)
            confirmed = "SELECT count(*) = 2 FROM deliveries WHERE kind = 'task_changed' AND status = 'delivered'"
            await until(lambda: database.fetchval(confirmed), timeout_s=60)
        states = [got.event["statusUpdate"]["status"]["state"] for got in receiving.got]
        assert states == ["TASK_STATE_INPUT_REQUIRED"] * 2 + ["TASK_STATE_COMPLETED"] * 2
        ids = [got.id for got in receiving.got]
        assert (ids[0], ids[2]) == (ids[1], ids[3])


async def _replace_the_worker(fleet: Fleet, receiving: Receiver, *, sent_before: int) -> None:
    """Kill the worker while a notification is not answered, and wait until another sends it again."""
    await until(lambda: len(receiving.got) == sent_before, timeout_s=60)
    fleet.workers[-1].kill()
    await fleet.start_worker()
    await until(lambda: len(receiving.got) == sent_before + 1, timeout_s=60)
