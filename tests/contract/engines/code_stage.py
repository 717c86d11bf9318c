"""The contract suite on agents in Python: a function that gives the answers, in sessions as its process has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.engine import Engine, EngineOptions
from nova_workers.contracts.user_agents import AgentReply, AgentRequest, OnNewVersion, ReportText
from nova_workers.contracts.user_tools import CallContext
from nova_workers.engines.code import CodeEngine
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.sdk import Context, Message
from nova_workers.sdk.agents import UserAgent
from nova_workers.sdk.execution import Execution
from nova_workers.sdk.sessions import Sessions
from tests.contract.engines.stage import Answer

NOT_OF_CODE = frozenset(
    {
        "test_a_failure_of_the_model_is_a_value_and_keeps_the_text",
        "test_max_turns_bounds_model_calls_and_leaves_a_valid_transcript",
        "test_max_turns_counts_the_steps_of_the_journal",
        "test_odd_schemas_are_sent_in_a_form_that_the_provider_takes",
        "test_reasoning_streams_separately_from_the_answer",
        "test_steering_that_was_committed_is_not_lost_by_a_crash",
        "test_usage_adds_up_over_steps",
    }
)
"""Of the suite, what is about models: their thinking, usage, failures and limits. Messages join where code asks."""


class CodeStage:
    """The engine `code`, without the process: what runs there runs here."""

    begins_in_s = 0.3
    at_once = 40

    def __init__(self) -> None:
        self.engine: Engine = CodeEngine(ConnectionPool())

    def options(self, answers: Sequence[Answer], **given: Any) -> EngineOptions:
        """Return options for a turn in which the function gives these answers, those of the journal included."""
        return EngineOptions(program=_Program(answers), run_id="r", **given)

    def call_id(self, step: int, at: int) -> str:
        """Return the id of the call at a place."""
        return f"code_v1_r_{step}_{at}"


class _Program:
    """Implements `AgentProgram`."""

    name = "stage:play"
    version = "v1"
    on_new_version: OnNewVersion = "continue"

    def __init__(self, answers: Sequence[Answer]) -> None:
        async def play(context: Context, _: Message) -> None:
            for answer in answers:
                if answer.wait_s:
                    await asyncio.sleep(answer.wait_s)
                for piece in answer.text.split(" "):
                    context.emit(piece if answer.text.endswith(piece) else f"{piece} ")
                if answer.stalls:
                    await asyncio.Event().wait()
                try:
                    await context.gather(*(context.tool(call.name, **call.input) for call in answer.calls))
                except ToolFailure:
                    continue

        self._sessions = Sessions({self.name: UserAgent("play", "", "", play)}, Execution())

    async def ask(self, request: AgentRequest, report: ReportText | None = None) -> AgentReply:
        """Answer as the process does."""
        loop = asyncio.get_running_loop()

        def emit(begins: int, text: str) -> None:
            if report is not None:
                loop.call_soon_threadsafe(report, begins, text)

        return await self._sessions.answer(request, CallContext(), emit)

    async def close(self) -> None:
        """Do nothing."""
