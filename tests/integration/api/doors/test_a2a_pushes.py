"""Push notifications of the A2A door: whose they are, when they are sent, and what they carry."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import ParseDict
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import NotFound
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.delivery import build_routes, build_sender
from nova_workers.bootstrap.webhooks import build_pushes
from nova_workers.contracts.pushes import PushConfigCreate
from nova_workers.contracts.runs import PlannedEffect
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.effects.sql import claim_effects
from nova_workers.domain.waits.sql.suspend import NewWait
from nova_workers.domain.webhooks.rules.pushes import MAX_PUSH_CONFIGS
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.conftest import Api
from tests.integration.api.doors.a2a_client import VERSION, message_of, rpc
from tests.integration.api.doors.test_a2a import Binding, both, client_of, said, sent
from tests.integration.api.doors.test_contract import NO_RUN
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.delivery.conftest import MASTER_KEY
from tests.requirements import proves
from tests.support.servers.webhook_receiver import Receiver, receiver, signed_by
from tests.support.waiting import until

_ENDS = (PlannedEffect("delivery", "has_listener"),)
_OTHER_KEY = "k2:" + base64.b64encode(bytes(range(1, 33))).decode()
_SIGNING = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Outbox:
    """Does what workers do after a run has changed: effects, routing and sending."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self._routes = build_routes(database, settings)
        self._ends = RunEndEffect(Work(database), self._routes)
        metrics = Metrics(CollectorRegistry())
        self._sender = build_sender(database, settings, self._routes, clock=SystemClock(), metrics=metrics)

    async def work(self) -> None:
        """Do all that is due."""
        async with self.database.connection() as connection:
            due = await claim_effects(connection, [("delivery", 100)], max_attempts=3, lease=timedelta(minutes=5))
        if due.claimed:
            await self._ends.handle(due.claimed)
        await self._sender.run_due()


@pytest.fixture
async def receiving() -> AsyncGenerator[Receiver]:
    """A receiver on loopback."""
    async with receiver() as made:
        yield made


@pytest.fixture
def settings(settings: Settings, receiving: Receiver) -> Settings:
    """Settings with a master key, and with the receiver allowed."""
    delivery = settings.delivery.model_copy(update={"webhook_allow_hosts": (receiving.host,)})
    secrets = settings.secrets.model_copy(update={"keys": (SecretStr(MASTER_KEY),)})
    return settings.model_copy(update={"delivery": delivery, "secrets": secrets})


@pytest.fixture
def outbox(database: Database, settings: Settings) -> Outbox:
    """The work of the fleet's workers on deliveries."""
    return Outbox(database, settings)


def status_in(body: bytes) -> Any:
    """Return the status update that a request carries, as the SDK reads it."""
    response = ParseDict(httpx2.Response(200, content=body).json(), StreamResponse())
    assert response.WhichOneof("payload") == "status_update"
    return response.status_update


@proves("doors.a2a-pushes")
@both
async def test_configurations_of_a_task_are_kept_listed_replaced_and_deleted(
    api: Api, other_tenant: Tenant, binding: Binding
) -> None:
    async with client_of(api.url, api.tenant.key, binding, streaming=False, polling=True) as client:
        assert (await client.get_extended_agent_card(GetExtendedAgentCardRequest())).capabilities.push_notifications
        task = await sent(client, said("hello"))
        given = TaskPushNotificationConfig(task_id=task.id, id="one", url="https://example.com/a")
        assert await client.create_task_push_notification_config(given) == given
        given.url = "https://example.com/b"
        assert await client.create_task_push_notification_config(given) == given
        unnamed = TaskPushNotificationConfig(task_id=task.id, url="https://example.com/c")
        made = await client.create_task_push_notification_config(unnamed)
        assert made.id.startswith("psh_")
        named = GetTaskPushNotificationConfigRequest(task_id=task.id, id="one")
        assert await client.get_task_push_notification_config(named) == given
        all_of_it = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await client.list_task_push_notification_configs(all_of_it)
        assert [config.id for config in listed.configs] == ["one", made.id]
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="one")
        for _ in range(2):
            await client.delete_task_push_notification_config(gone)
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(named)
    async with client_of(api.url, other_tenant.key, binding) as stranger:
        for ask in (
            stranger.create_task_push_notification_config(given),
            stranger.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
            ),
            stranger.list_task_push_notification_configs(all_of_it),
            stranger.delete_task_push_notification_config(gone),
        ):
            with pytest.raises(TaskNotFoundError):
                await ask


@proves("doors.a2a-pushes")
async def test_configurations_that_are_refused_name_the_field(api: Api) -> None:
    run = await api.run(await api.thread(), "hello")
    for field, given in (
        ("url", {"url": "http://example.com"}),
        ("url", {"url": "https://10.0.0.1/hook"}),
        ("url", {"url": "https://localhost/hook"}),
        ("id", {"id": "a/b", "url": "https://example.com"}),
        ("token", {"token": "a\nb", "url": "https://example.com"}),
        ("token", {"token": "whsec_short", "url": "https://example.com"}),
        (
            "authentication.scheme",
            {"authentication": {"scheme": "Bea rer", "credentials": "x"}, "url": "https://a.com"},
        ),
    ):
        answer = (await rpc("CreateTaskPushNotificationConfig", {"taskId": run, **given}).send(api.http)).json()
        assert answer["error"]["code"] == -32602, given
        assert field in answer["error"]["message"], answer
        configuration = {"returnImmediately": True, "taskPushNotificationConfig": given}
        send = rpc("SendMessage", {"message": message_of("hello"), "configuration": configuration})
        assert (await send.send(api.http)).json()["error"]["code"] == -32602
    assert await api.count("runs") == 1
    assert await api.count("push_configs") == 0

    none = rpc("CreateTaskPushNotificationConfig", {"taskId": NO_RUN, "url": "https://example.com"})
    assert (await none.send(api.http)).json()["error"]["code"] == -32001
    path = f"/a2a/nova/tasks/{run}/pushNotificationConfigs"
    for number in range(MAX_PUSH_CONFIGS):
        answer = await api.http.post(path, json={"url": f"https://example.com/{number}"}, headers=VERSION)
        assert answer.status_code == 200, answer.text
    answer = await api.http.post(path, json={"url": "https://example.com/more"}, headers=VERSION)
    assert "Delete one first" in answer.json()["error"]["message"]
    assert await api.count("push_configs") == MAX_PUSH_CONFIGS

    steering = await api.run(await api.thread(), "hello", on_busy="steer")
    joining = rpc("CreateTaskPushNotificationConfig", {"taskId": steering, "url": "https://example.com"})
    assert (await joining.send(api.http)).json()["error"]["code"] == -32004


@proves("doors.a2a-pushes")
async def test_a_client_is_notified_when_its_task_asks_and_when_it_ends(
    api: Api, worker: ManualWorker, outbox: Outbox, receiving: Receiver
) -> None:
    async with client_of(api.url, api.tenant.key, streaming=False, polling=True) as client:
        request = said("Paint.")
        config = request.configuration.task_push_notification_config
        config.url, config.token = receiving.url("/hook"), "for-this-task"
        config.authentication.CopyFrom(AuthenticationInfo(scheme="Bearer", credentials="secret"))
        task = await sent(client, request)
        # The same message has the same configuration.
        assert (await sent(client, request)).id == task.id
        assert await outbox.database.fetchval("SELECT count(*) FROM push_configs") == 1

        turn = await worker.claim(task.context_id)
        await outbox.work()
        assert receiving.got == []
        await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Which?", options=("red", "blue"))))
        await outbox.work()
        [asked] = receiving.got
        assert asked.headers["content-type"] == "application/a2a+json"
        assert asked.headers["x-a2a-notification-token"] == "for-this-task"
        assert asked.headers["authorization"] == "Bearer secret"
        update = status_in(asked.body)
        assert (update.task_id, update.context_id) == (task.id, task.context_id)
        assert update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert update.status.message.parts[0].text == "Which?\n- red\n- blue"

        answer = said("blue", "m2", task_id=task.id)
        await sent(client, answer)
        turn = await worker.claim(task.context_id)
        turn.step, turn.seq = 1, 3
        await turn.finish("Blue it is.", effects=_ENDS)
        await outbox.work()
        await outbox.work()
        assert [status_in(got.body).status.state for got in receiving.got] == [
            TaskState.TASK_STATE_INPUT_REQUIRED,
            TaskState.TASK_STATE_COMPLETED,
        ]

        # Nothing of the client's secrets is shown, and a task that is canceled before it began ends too.
        shown = await api.http.get(f"/a2a/nova/tasks/{task.id}/pushNotificationConfigs", headers=VERSION)
        assert "secret" not in shown.text
        assert "for-this-task" not in shown.text
        later = said("Stop.", "m3")
        await sent(client, later)
        # A message that is sent again may have one, too.
        later.configuration.task_push_notification_config.url = receiving.url("/later")
        unbegun = await sent(client, later)
        await client.cancel_task(CancelTaskRequest(id=unbegun.id))
        await outbox.work()
        [canceled] = receiving.at("/later")
        assert status_in(canceled.body).status.state == TaskState.TASK_STATE_CANCELED
        assert "authorization" not in canceled.headers
        assert "webhook-signature" not in canceled.headers


@proves("doors.a2a-pushes")
async def test_a_late_notification_says_how_the_task_is_now(
    api: Api, worker: ManualWorker, outbox: Outbox, receiving: Receiver
) -> None:
    receiving.answers["/hook"] = lambda before: 503 if before == 0 else 204
    thread = await api.thread()
    run = await api.run(thread, "Paint.")
    turn = await worker.claim(thread)
    await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Which?")))
    await outbox.work()
    path = f"/a2a/nova/tasks/{run}/pushNotificationConfigs"
    given = {"id": "one", "url": receiving.url("/hook"), "token": _SIGNING}
    # The question is there already, so the address is notified at once.
    assert (await api.http.post(path, json=given, headers=VERSION)).is_success
    await outbox.work()
    assert (await api.http.post(f"/v1/runs/{run}/cancel")).is_success
    turn = await worker.claim(thread)
    turn.step, turn.seq = 1, 3
    await turn.finish("", "canceled", effects=_ENDS)
    await outbox.database.execute("UPDATE deliveries SET due_at = now() WHERE status = 'pending'")
    await outbox.work()
    states = [status_in(got.body).status.state for got in receiving.got]
    assert states[0] == TaskState.TASK_STATE_INPUT_REQUIRED
    assert set(states[1:]) == {TaskState.TASK_STATE_CANCELED}
    assert receiving.got[0].id in {got.id for got in receiving.got[1:]}
    # A token that is a secret of Standard Webhooks signs, and is not sent.
    assert all(signed_by(_SIGNING, got) for got in receiving.got)
    assert all(_SIGNING not in got.headers.values() for got in receiving.got)

    # Who comes after the end is notified too, unless the configuration is deleted first.
    assert (await api.http.post(path, json={**given, "id": "two"}, headers=VERSION)).is_success
    assert (await api.http.post(path, json={**given, "id": "three"}, headers=VERSION)).is_success
    assert (await api.http.delete(f"{path}/two", headers=VERSION)).is_success
    before = len(receiving.got)
    await outbox.work()
    assert len(receiving.got) == before + 1


@proves("doors.a2a-pushes")
async def test_secrets_of_clients_are_sealed_and_move_to_a_new_master_key(
    api: Api, settings: Settings, database: Database
) -> None:
    run = await api.run(await api.thread(), "hello")
    path = f"/a2a/nova/tasks/{run}/pushNotificationConfigs"
    given = {
        "id": "one",
        "url": "https://example.com",
        "token": "a-token",
        "authentication": {"scheme": "Basic", "credentials": "dXNlcjpzZWNyZXQ="},
    }
    assert (await api.http.post(path, json=given, headers=VERSION)).is_success
    row = await database.fetchrow("SELECT * FROM push_configs")
    assert row is not None
    assert b"a-token" not in row["secret"]
    assert b"dXNlcjpzZWNyZXQ" not in row["secret"]
    recorded = await database.fetchval("SELECT action FROM audit_events WHERE target_kind = 'push_config'")
    assert recorded == "push_config.created"

    keys = (SecretStr(_OTHER_KEY), SecretStr(MASTER_KEY))
    rotated = settings.model_copy(update={"secrets": settings.secrets.model_copy(update={"keys": keys})})
    done = await build_pushes(Work(database), rotated).reseal()
    assert (done.key_id, done.rotated, done.remaining, done.unreadable) == ("k2", 1, 0, 0)
    assert await database.fetchval("SELECT key_id FROM push_configs") == "k2"
    with pytest.raises(NotFound):
        await build_pushes(Work(database), rotated).put(
            "ten_other", run, PushConfigCreate(name="x", url="https://a.com")
        )
    # The configuration goes with the run.
    await database.execute("DELETE FROM runs WHERE id = :run", run=run)
    assert await database.fetchval("SELECT count(*) FROM push_configs") == 0


@proves("doors.a2a-pushes")
async def test_a_run_that_ends_while_an_address_is_added_notifies_it(
    api: Api, worker: ManualWorker, outbox: Outbox, receiving: Receiver, database: Database, settings: Settings
) -> None:
    thread = await api.thread()
    run = await api.run(thread, "hello")
    turn = await worker.claim(thread)
    add = build_pushes(Work(database), settings).adding(
        api.tenant.id, PushConfigCreate(name="one", url=receiving.url("/hook"))
    )
    async with database.transaction() as connection:
        await add(connection, run)
        # Its statement has begun before the address is committed, and waits for the row.
        ending = asyncio.create_task(turn.finish("Done.", effects=_ENDS))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await until(lambda: database.fetchval(waits))
    await ending
    await outbox.work()
    [got] = receiving.got
    assert status_in(got.body).status.state == TaskState.TASK_STATE_COMPLETED
