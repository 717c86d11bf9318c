"""Agents of Pydantic AI: whatever the journal has, they go on from there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, CallDeferred, ModelRetry, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from nova_workers.contracts.user_agents import JournalEntry
from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.adapters.pydantic_ai import run_agent
from nova_workers.sdk.durable import Context, StepFailed
from tests.requirements import proves
from tests.support.harness.paper_journal import Died, PaperJournal

RESPONSES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("left", '{"x": 1}'), ("right", "{}")),
    (("picky", "{}"),),
    (("pay", '{"cents": 5}'), ("which", "{}")),
)
"""Calls of the model's responses, before its answer."""


def _agent(did: list[str]) -> Agent[None, str]:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        at = sum(isinstance(each, ModelResponse) for each in messages)
        did.append(f"model {at}")
        if at < len(RESPONSES):
            yield f"Step {at}. "
            yield {
                number: DeltaToolCall(name=name, json_args=given, tool_call_id=f"{at}-{number}")
                for number, (name, given) in enumerate(RESPONSES[at])
            }
            return
        returned = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        for part in returned:
            yield f"{part.tool_name}: {part.content} "

    agent = Agent(FunctionModel(stream_function=answer))

    @agent.tool_plain
    async def left(x: int) -> dict[str, int]:
        did.append("left")
        return {"x": x}

    @agent.tool_plain
    def right() -> ToolReturn:
        did.append("right")
        return ToolReturn(return_value="r", metadata={"kept": True})

    @agent.tool_plain
    def picky() -> str:
        did.append("picky")
        raise ModelRetry("Say it otherwise.")

    @agent.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        did.append("pay")
        return f"paid {cents}"

    @agent.tool_plain
    def which() -> str:
        raise CallDeferred(metadata={"question": "Which?"}, kind="question")

    return agent


async def _run(
    entries: Sequence[JournalEntry], most: int = 99, answer: str = "approve"
) -> tuple[list[str], PaperJournal, str | None]:
    """Return what one attempt executes, its journal, and the answer."""
    did: list[str] = []
    journal = PaperJournal(entries, most=most, answer=answer)
    try:
        result = await run_agent(Context(journal, CallContext()), _agent(did), "hi")
    except Died:
        return did, journal, None
    return did, journal, result.output.strip()


ANSWER = "left: {'x': 1} right: r picky: Say it otherwise. pay: paid 5 which: approve"


@proves("pydantic_ai.resumed")
async def test_an_agent_goes_on_from_any_step_and_repeats_no_request_and_no_call() -> None:
    did, whole, said = await _run(())
    assert said == ANSWER
    assert did == ["model 0", "left", "right", "model 1", "picky", "model 2", "pay", "model 3"]
    assert whole.questions == ['May pay be called with {"cents": 5}?', "Which?"]
    labels = [[each.operation.label for each in entry.finished] for entry in whole.entries]
    assert labels[:3] == [["step 'model'"], ["step 'left'", "step 'right'"], ["step 'model'"]]
    for most in range(len(whole.entries) + 1):
        before, journal, _ = await _run((), most=most)
        after, resumed, said = await _run(journal.entries)
        assert said == ANSWER, most
        assert (journal.said if most == len(whole.entries) else resumed.said) in whole.said
        recorded = [each.operation.input.get("name") for entry in journal.entries for each in entry.finished]
        assert len([each for each in after if each.startswith("model")]) == 4 - recorded.count("model"), most
        assert not {each for each in after if not each.startswith("model")} & set(recorded), (most, before)


@proves("pydantic_ai.waits")
async def test_a_call_that_a_person_denies_is_not_made() -> None:
    did, _, said = await _run((), answer="deny")
    assert "pay" not in did
    assert "pay: A person denied it: deny" in (said or "")


@proves("pydantic_ai.resumed")
async def test_an_error_of_a_tool_is_kept_and_one_that_is_no_step_may_use_operations() -> None:
    agent = Agent(FunctionModel(stream_function=_calls("ask")), deps_type=Context)

    @agent.tool
    async def ask(run: RunContext[Context]) -> str:
        return await run.deps.ask_user("Which?")

    journal = PaperJournal(())
    context = Context(journal, CallContext())
    assert (await run_agent(context, agent, "hi", deps=context, inline=["ask"])).output == "Done."
    assert journal.questions == ["Which?"]

    broken = Agent(FunctionModel(stream_function=_calls("breaks")))

    @broken.tool_plain
    def breaks() -> str:
        raise ValueError("no luck")

    with pytest.raises(StepFailed, match="no luck"):
        await run_agent(Context(PaperJournal(()), CallContext()), broken, "hi")
    result = await run_agent(Context(PaperJournal(()), CallContext()), broken, "hi", once=["breaks"])
    assert result.output == "Done."


def _calls(tool: str) -> Any:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name=tool, json_args="{}", tool_call_id="1")}
        else:
            yield "Done."

    return answer
