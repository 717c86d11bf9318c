"""Every engine stops for calls that the caller of its run executes, and continues with their results."""

from dataclasses import replace

from nova_workers.contracts.content import text_block
from nova_workers.contracts.run_options import ClientTool
from nova_workers.domain.capabilities.rules.seam import ClientServer
from nova_workers.domain.capabilities.rules.serving import client_server
from tests.contract.engines.stage import Answer, Bench, Call, Stage, TurnRecorder, assert_valid
from tests.requirements import proves

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WEATHER = ClientTool(name="weather", description="Reads the sky.", input_schema=_SCHEMA, timeout_s=60)


@proves("runs.client-tools")
async def test_a_turn_stops_for_tools_of_the_caller_and_continues_with_their_results(
    stage: Stage, recorder: TurnRecorder, bench: Bench
) -> None:
    calls = Call("weather", {"city": "Oslo"}), Call("add", {"a": 1, "b": 2}), Call("weather", {"city": "Rome"})
    answers = [Answer("Let me see.", calls=calls), Answer("Take a coat.")]
    servers = {"client": client_server(ClientServer((_WEATHER,))), **bench.servers()}
    stopped = await stage.engine.run(
        "hi", stage.options(answers, mcp_servers=servers), "sandbox", callbacks=recorder.callbacks()
    )
    assert (stopped.error, stopped.stop_reason, recorder.records) == (None, "tool_use", [])
    assert [(one.call.id, one.request["tool_name"], one.request["params"]) for one in stopped.deferred] == [
        (stage.call_id(0, 0), "weather", {"city": "Oslo"}),
        (stage.call_id(0, 2), "weather", {"city": "Rome"}),
    ]
    [begun] = recorder.before_tools
    done = {call.id: call for call in recorder.results}
    given = {stage.call_id(0, 0): ("completed", "rain"), stage.call_id(0, 2): ("failed", "no sky")}
    ended = tuple(
        replace(call, status=given[call.id][0], result=(text_block(given[call.id][1]),))
        if call.id in given
        else done[call.id]
        for call in begun.tool_calls
    )
    journal = (replace(begun, tool_calls=ended, complete=False),)
    later = TurnRecorder()
    options = stage.options(answers, mcp_servers={**servers, **Bench().servers()}, journal=journal)
    result = await stage.engine.run("hi", options, "sandbox", callbacks=later.callbacks())
    assert (result.error, result.text, result.deferred) == (None, "Take a coat.", ())
    assert bench.runs == ["add"]
    assert_valid(result.messages)
    results = [block for message in result.messages for block in message.content if block["type"] == "tool_result"]
    assert [block["content"][0]["text"] for block in results] == ["rain", "3", "no sky"]
