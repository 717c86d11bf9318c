"""Uses the fleet as model of `litellm`, `openai-agents` and `langchain-openai`: ``python openai_clients.py URL``.

It runs in an environment of its own, which has these packages and nothing of ours. The key is in NOVA_KEY.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

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


def use_litellm_chats(url: str, key: str) -> None:
    """Call the functions of litellm for chats and embeddings."""
    import litellm  # noqa: PLC0415 - an environment of its own

    of = {"model": "openai/nova", "api_base": url, "api_key": key}
    messages = [{"role": "user", "content": "hello"}]
    first = litellm.completion(messages=messages, temperature=0.5, max_tokens=50, **of)
    assert first.choices[0].message.content == "Hello."
    more = [*messages, first.choices[0].message.model_dump(), {"role": "user", "content": "again"}]
    chunks = list(litellm.completion(messages=more, stream=True, stream_options={"include_usage": True}, **of))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello."
    asked = litellm.completion(messages=messages, tools=[_as_chat(TOOL)], tool_choice="auto", **of)
    call = asked.choices[0].message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny in Rome"}
    told = litellm.completion(
        messages=[*messages, asked.choices[0].message.model_dump(), result], tools=[_as_chat(TOOL)], **of
    )
    assert told.choices[0].message.content == "It is sunny in Rome."
    try:
        litellm.completion(messages=messages, **{**of, "model": "openai/none"})
    except litellm.NotFoundError:
        return
    raise AssertionError("an agent that is none was not refused")


async def use_agents_chats(url: str, key: str) -> None:
    """Run an agent of the SDK whose model speaks Chat Completions."""
    import agents  # noqa: PLC0415 - an environment of its own
    from openai import AsyncOpenAI  # noqa: PLC0415 - as above

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0)

    @agents.function_tool
    def get_weather(location: str) -> str:
        """Get the weather."""
        return f"sunny in {location}"

    model = agents.OpenAIChatCompletionsModel(model="nova", openai_client=client)
    agent = agents.Agent(name="Weather", instructions="Be brief.", model=model, tools=[get_weather])
    first = await agents.Runner.run(agent, "What is the weather in Rome?")
    assert first.final_output == "It is sunny in Rome.", first.final_output
    streamed = agents.Runner.run_streamed(agent, "What is the weather in Rome?")
    assert {event.type async for event in streamed.stream_events()}
    assert streamed.final_output == "It is sunny in Rome."


def use_langchain(url: str, key: str) -> None:
    """Call LangChain's chat model: messages, a stream, a tool, a structured answer."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: PLC0415 - as above
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - as above

    model = ChatOpenAI(model="nova", base_url=url, api_key=key, max_retries=0, temperature=0.2, seed=1)
    chat = [SystemMessage("Be brief."), HumanMessage("hello")]
    first = model.invoke(chat)
    assert (first.content, first.usage_metadata["output_tokens"] > 0) == ("Hello.", True)
    chunks = list(model.stream([*chat, first, HumanMessage("again")], stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == "Hello."
    asked = model.bind_tools([_as_chat(TOOL)], parallel_tool_calls=False).invoke(chat)
    assert isinstance(asked, AIMessage)
    result = ToolMessage("sunny in Rome", tool_call_id=asked.tool_calls[0]["id"])
    told = model.bind_tools([_as_chat(TOOL)]).invoke([*chat, asked, result])
    assert told.content == "It is sunny in Rome."


def _as_chat(tool: Any) -> Any:
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


if __name__ == "__main__":
    use_langchain(sys.argv[1], os.environ["NOVA_KEY"])
    use_litellm_chats(sys.argv[1], os.environ["NOVA_KEY"])
    asyncio.run(use_agents_chats(sys.argv[1], os.environ["NOVA_KEY"]))
    use_litellm(sys.argv[1], os.environ["NOVA_KEY"])
    asyncio.run(use_agents(sys.argv[1], os.environ["NOVA_KEY"]))
