"""Delivery by a real fleet: API, worker and beat as processes of their own, and the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.domain.delivery.rules.from_agents import notify
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.delivery.conftest import MASTER_KEY
from tests.requirements import proves
from tests.support.processes.command_line import Done, Nova
from tests.support.processes.fleet import Fleet, fleet_env
from tests.support.servers.webhook_receiver import Receiver, signed_by
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

SCRIPT = json.dumps(
    {"script": [{"tool": {"name": "notify_user", "input": {"message": "Look here"}}}, {"say": "All is well."}]}
)


@proves("outbox.at-least-once", "outbox.run-end", "webhooks.signed")
async def test_a_fleet_delivers_notifications_and_ends_of_runs_and_retries(
    settings: Settings, database: Database, receiving: Receiver, tmp_path: Path
) -> None:
    env = {
        **fleet_env(settings),
        "NOVA_SECRETS__KEYS": json.dumps([MASTER_KEY]),
        "NOVA_DELIVERY__WEBHOOK_ALLOW_HOSTS": json.dumps([receiving.host]),
        "NOVA_DELIVERY__EVERY_S": "1",
    }
    async with Fleet(env, beat=True, log_dir=tmp_path) as fleet:
        nova = Nova({**fleet.env, "NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": fleet.api_key, "NO_COLOR": "1"})

        async def command(*words: str) -> Done:
            return await asyncio.to_thread(nova.good, *words)

        made = (await command("webhooks", "create", receiving.url("/hook"), "--description", "CI", "--json")).json
        webhook_id = made["webhook"]["id"]
        assert webhook_id in (await command("webhooks", "list")).out
        assert made["secret"] not in (await command("webhooks", "show", webhook_id, "--json")).out
        assert "answered 204" in (await command("webhooks", "test", webhook_id)).out

        run = await fleet.client.runs.create(StatelessRunCreate(agent_id="nova", message=SCRIPT, queue="background"))
        await until(lambda: len(receiving.got) == 3)
        told = {got.event["type"]: got.event["data"] for got in receiving.got}
        assert told["agent.notification"]["text"] == "Look here"
        assert (told["run.completed"]["run_id"], told["run.completed"]["text"]) == (run.id, "All is well.")
        assert all(signed_by(made["secret"], got) for got in receiving.got)

        # Without a doorbell: the tick finds it. It fails, and is tried again when its time has come.
        receiving.answers["/hook"] = lambda before: 500 if before == 3 else 204
        await notify(Work(database), Sender(fleet.tenant_id or "", "nova", run.thread_id, run.id), "Once more")
        await until(lambda: len(receiving.got) == 4)
        waits = "SELECT id FROM deliveries WHERE status = 'pending' AND error IS NOT NULL"
        await until(lambda: database.fetchval(waits))
        assert "answered 500" in (await command("webhooks", "waiting")).out
        assert "is tried now" in (await command("webhooks", "retry", webhook_id)).out
        await until(lambda: len(receiving.got) == 5)
        assert receiving.got[3].id == receiving.got[4].id

        rotated = (await command("webhooks", "rotate", webhook_id, "--grace", "0", "--json")).json
        assert "is on its way again" in (await command("webhooks", "replay", receiving.got[4].id)).out
        await until(lambda: len(receiving.got) == 6)
        assert signed_by(rotated["secret"], receiving.got[5])
        assert not signed_by(made["secret"], receiving.got[5])
        assert receiving.got[4].id in (await command("webhooks", "sent", webhook_id)).out
        assert "Look here" in (await command("inbox")).out
        assert (await command("webhooks", "disable", webhook_id, "--json")).json["enabled"] is False
        assert (await asyncio.to_thread(nova, "webhooks", "test", webhook_id)).code == 1
        assert (await command("webhooks", "enable", webhook_id, "--json")).json["enabled"] is True
        edited = await command("webhooks", "edit", webhook_id, "--kind", "note", "--agent", "nova", "--json")
        assert (edited.json["kinds"], edited.json["agent_id"]) == (["note"], "nova")
        assert (await command("webhooks", "delete", webhook_id, "--json")).json == {"deleted": [webhook_id]}
        assert "No webhooks" in (await command("webhooks", "list")).err
