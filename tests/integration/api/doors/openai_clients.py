"""Uses the fleet as model of `litellm` and `openai-agents`: ``python openai_clients.py URL``, the key in NOVA_KEY.

It runs in an environment of its own, which has these packages and nothing of ours.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import os
import sys

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


async def use_agents(url: str, key: str) -> None:
    """Run an agent of the SDK: tools, its own history, a session, a stream."""
    import agents  # noqa: PLC0415 - an environment of its own
    from openai import AsyncOpenAI  # noqa: PLC0415 - as above

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0)

    @agents.function_tool
    def get_weather(location: str) -> str:
        """Get the weather."""
        return f"sunny in {location}"

    model = agents.OpenAIResponsesModel(model="nova", openai_client=client)
    agent = agents.Agent(name="Weather", instructions="Be brief.", model=model, tools=[get_weather])
    first = await agents.Runner.run(agent, "What is the weather in Rome?")
    assert first.final_output == "It is sunny in Rome.", first.final_output
    more = [*first.to_input_list(), {"role": "user", "content": "And tomorrow?"}]
    assert (await agents.Runner.run(agent, more)).final_output == "It is sunny in Rome."
    chained = await agents.Runner.run(agent, "Weather?", auto_previous_response_id=True)
    plain = agents.Agent(name="Plain", model=model)
    again = await agents.Runner.run(plain, "Thanks", previous_response_id=chained.last_response_id)
    assert again.final_output == "Hello."
    session = agents.SQLiteSession("a session")
    for text in ("one", "two"):
        assert (await agents.Runner.run(plain, text, session=session)).final_output == "Hello."
    streamed = agents.Runner.run_streamed(agent, "What is the weather in Rome?")
    kinds = {event.type async for event in streamed.stream_events()}
    assert streamed.final_output == "It is sunny in Rome."
    assert "run_item_stream_event" in kinds


def use_litellm(url: str, key: str) -> None:
    """Call the functions of litellm for responses."""
    import litellm  # noqa: PLC0415 - an environment of its own

    of = {"model": "openai/nova", "api_base": url, "api_key": key}
    first = litellm.responses(input="hello", **of)
    assert first.output[0].content[0].text == "Hello."
    second = litellm.responses(input="again", previous_response_id=first.id, **of)
    assert second.status == "completed"
    events = list(litellm.responses(input="hello", stream=True, **of))
    assert events[-1].response.status == "completed"
    asked = litellm.responses(input="Weather?", tools=[TOOL], **of)
    output = {"type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "sunny in Rome"}
    told = litellm.responses(input=[output], previous_response_id=asked.id, tools=[TOOL], **of)
    assert told.output[0].content[0].text == "It is sunny in Rome."
    try:
        litellm.responses(input="hello", **{**of, "model": "openai/none"})
    except litellm.NotFoundError:
        return
    raise AssertionError("an agent that is none was not refused")


if __name__ == "__main__":
    use_litellm(sys.argv[1], os.environ["NOVA_KEY"])
    asyncio.run(use_agents(sys.argv[1], os.environ["NOVA_KEY"]))
