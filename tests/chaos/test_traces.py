"""One trace a run, also if it waits for a person and its worker is killed."""

from __future__ import annotations

import json

import pytest

from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from nova_workers.contracts.waits import RunAnswer
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.servers.trace_collector import TraceCollector, trace_collector
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_SCRIPT = {
    "script": [
        {"tool": {"name": "ask_user", "input": {"question": "Shall I?"}}},
        {"tool": {"name": "slow", "sleep_s": 600, "result": "never"}},
        {"say": "Done."},
    ]
}


@proves("traces.continuous")
async def test_a_trace_goes_on_after_a_wait_and_on_another_worker(env: dict[str, str], database: Database) -> None:
    with trace_collector() as collector:
        traced = {"NOVA_TELEMETRY__OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with Fleet(env | traced, beat=True) as fleet:
            spec = {"id": "asker", "name": "Asker", "engine": "scripted", "capabilities": {"user": {}}}
            await fleet.client.agents.create(AgentCreate.model_validate(spec))
            message = json.dumps(_SCRIPT)
            run = await fleet.client.runs.wait(StatelessRunCreate(message=message, agent_id="asker"))
            assert run.status == "waiting"
            traceparent = await database.fetchval("SELECT traceparent FROM runs WHERE id = :id", id=run.id)
            trace_id = traceparent.split("-")[1]
            await fleet.client.runs.answer(run.id, RunAnswer(text="yes"))
            # The second attempt has asked its model, and its call of the tool runs.
            await until(lambda: len(collector.of(trace_id, "chat scripted")) == 2, timeout_s=60)
            fleet.workers[0].kill()
            await fleet.start_worker()
            done = await fleet.client.runs.result(run.id)
            assert (done.status, done.text) == ("succeeded", "Done.")
            await until(lambda: len(collector.of(trace_id, "invoke_agent Asker")) == 2, timeout_s=60)
        _check(collector, trace_id, run.thread_id, message)


def _check(collector: TraceCollector, trace_id: str, thread_id: str, message: str) -> None:
    (request,) = collector.of(trace_id, "POST /v1/runs/wait")
    assert [span.name for span in collector.of(trace_id) if not span.parent_id] == [request.name]
    suspended, last = sorted(
        collector.of(trace_id, "invoke_agent Asker"), key=lambda span: str(span.attributes["nova.attempt"])
    )
    assert {suspended.parent_id, last.parent_id} == {request.span_id}
    assert suspended.instance != last.instance
    assert last.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert last.attributes["gen_ai.agent.id"] == "asker"
    assert last.attributes["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert last.attributes["gen_ai.provider.name"] == "scripted"
    asked, called, answered = collector.of(trace_id, "chat scripted")
    assert (asked.parent_id, answered.parent_id) == (suspended.span_id, last.span_id)
    # The span of the attempt whose worker was killed never ended.
    assert called.parent_id not in {suspended.span_id, last.span_id}
    reasons = [span.attributes["gen_ai.response.finish_reasons"] for span in (asked, called, answered)]
    assert reasons == [["tool_call"], ["tool_call"], ["stop"]]
    (tool,) = collector.of(trace_id, "execute_tool ask_user")
    assert (tool.parent_id, tool.attributes["nova.tool.deferred"]) == (suspended.span_id, True)
    of_worker = [span for span in collector.of(trace_id) if span.process == "worker"]
    assert {span.attributes.get("gen_ai.conversation.id") for span in of_worker} == {thread_id}
    assert "Shall I?" in message
    assert "Shall I?" not in repr(collector.spans)
