"""What LangGraph's SDK calls of crons."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError, NotFoundError, UnprocessableEntityError

from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves

NEWS: Any = {"messages": [{"role": "user", "content": "Read the news."}]}
LOOK: Any = "Look."
SLEEP: Any = "Sleep."
END = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture
async def sdk(api: Api) -> AsyncGenerator[LangGraphClient]:
    """The SDK with the tenant's key."""
    async with get_client(url=f"{api.url}/langgraph", api_key=api.tenant.key) as client:
        yield client


@proves("doors.langgraph-crons")
async def test_a_cron_is_a_trigger(api: Api, sdk: LangGraphClient) -> None:
    made: Any = await sdk.crons.create(
        "nova", schedule="30 9 * * mon-fri", input=NEWS, timezone="Europe/Berlin", end_time=END
    )
    trigger = (await api.http.get(f"/v1/triggers/{made['cron_id']}")).json()
    assert (trigger["agent_id"], trigger["prompt"], trigger["thread_id"]) == ("nova", "Read the news.", None)
    assert (trigger["schedule"], trigger["timezone"]) == ("30 9 * * mon-fri", "Europe/Berlin")
    assert datetime.fromisoformat(trigger["ends_at"]) == END
    assert trigger["overlap"] == "queue"
    assert made["payload"]["input"] == NEWS
    assert datetime.fromisoformat(made["next_run_date"]) == datetime.fromisoformat(trigger["next_fire_at"])

    own = str(uuid4())
    await sdk.threads.create(thread_id=own)
    of_thread: Any = await sdk.crons.create_for_thread(own, "nova", schedule="0 * * * *", input=LOOK, enabled=False)
    assert (of_thread["thread_id"], of_thread["enabled"], of_thread["timezone"]) == (own, False, "UTC")

    assert [each["cron_id"] for each in await sdk.crons.search()] == [of_thread["cron_id"], made["cron_id"]]
    assert [each["cron_id"] for each in await sdk.crons.search(thread_id=own)] == [of_thread["cron_id"]]
    assert [each["cron_id"] for each in await sdk.crons.search(enabled=True)] == [made["cron_id"]]
    last = await sdk.crons.search(sort_by="next_run_date", sort_order="asc", offset=1, limit=1)
    assert [each["cron_id"] for each in last] == [made["cron_id"]]
    assert await sdk.crons.count(assistant_id="nova") == 2
    assert await sdk.crons.count(metadata={"a": 1}) == 0

    changed = await sdk.crons.update(made["cron_id"], schedule="0 8 * * *", input=SLEEP, end_time=None)
    assert (changed["schedule"], changed["end_time"], changed["timezone"]) == ("0 8 * * *", None, "Europe/Berlin")
    assert (await api.http.get(f"/v1/triggers/{made['cron_id']}")).json()["prompt"] == "Sleep."
    await sdk.crons.delete(made["cron_id"])
    assert await sdk.crons.count() == 1
    # Other triggers are none.
    body = {"agent_id": "nova", "kind": "every", "schedule": "3600", "prompt": "Look."}
    other = (await api.http.post("/v1/triggers", json=body)).json()["id"]
    assert await sdk.crons.count() == 1
    with pytest.raises(NotFoundError):
        await sdk.crons.delete(other)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"config": {"configurable": {"model": "haiku"}}}, "config"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"webhook": "https://example.com"}, "webhook"),
        ({"interrupt_before": ["tools"]}, "interrupt_before"),
        ({"multitask_strategy": "interrupt"}, "multitask_strategy"),
        ({"on_run_completed": "delete"}, "on_run_completed"),
        ({"input": {"messages": [("user", "a"), ("assistant", "b"), ("user", "c")]}}, "input.messages"),
        ({"input": {"messages": [("system", "a"), ("user", "b")]}}, "input.messages"),
    ],
    ids=str,
)
@proves("doors.langgraph-crons")
async def test_what_no_trigger_keeps_is_a_501_that_names_the_field(
    api: Api, sdk: LangGraphClient, fields: dict[str, Any], named: str
) -> None:
    given: dict[str, Any] = {"schedule": "0 * * * *", "input": NEWS, **fields}
    with pytest.raises(APIStatusError) as error:
        await sdk.crons.create("nova", **given)
    assert error.value.status_code == 501
    body: Any = error.value.response.json()
    assert body["detail"].startswith(f"{named}: ")
    assert await sdk.crons.count() == 0


async def test_a_wrong_schedule_agent_or_input_is_refused(sdk: LangGraphClient) -> None:
    with pytest.raises(UnprocessableEntityError, match="schedule"):
        await sdk.crons.create("nova", schedule="hourly", input=NEWS)
    with pytest.raises(UnprocessableEntityError, match="input"):
        await sdk.crons.create("nova", schedule="0 * * * *")
    with pytest.raises(NotFoundError):
        await sdk.crons.create("stranger", schedule="0 * * * *", input=NEWS)


async def test_a_cron_is_made_once_for_an_id_of_a_request(sdk: LangGraphClient) -> None:
    headers = {"Idempotency-Key": "news"}
    first: Any = await sdk.crons.create("nova", schedule="0 * * * *", input=NEWS, headers=headers)
    again: Any = await sdk.crons.create("nova", schedule="0 * * * *", input=NEWS, headers=headers)
    assert again["cron_id"] == first["cron_id"]


async def test_crons_need_a_key_that_may_use_triggers_and_are_of_one_tenant(
    api: Api, sdk: LangGraphClient, other_tenant: Tenant
) -> None:
    made: Any = await sdk.crons.create("nova", schedule="0 * * * *", input=NEWS)
    async with get_client(url=f"{api.url}/langgraph", api_key=other_tenant.key) as stranger:
        assert await stranger.crons.count() == 0
        with pytest.raises(NotFoundError):
            await stranger.crons.update(made["cron_id"], enabled=False)
    key = (await api.http.post("/v1/keys", json={"name": "talker", "scopes": ["runs"]})).json()["key"]
    async with get_client(url=f"{api.url}/langgraph", api_key=key) as talker:
        with pytest.raises(APIStatusError, match="workspace") as error:
            await talker.crons.search()
        assert error.value.status_code == 403
