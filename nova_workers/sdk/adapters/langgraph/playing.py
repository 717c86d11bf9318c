"""Plays a graph as a part of a durable agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot

from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.native import CODE_STEP
from nova_workers.contracts.user_agents import Operation
from nova_workers.sdk.adapters.langgraph.listening import Speech, UsageCollector
from nova_workers.sdk.adapters.langgraph.saver import JournalSaver, Record
from nova_workers.sdk.declaration import ToolOptions
from nova_workers.sdk.durable import Context, StepFunction, Used, Wanted, step_value

OnInterrupt = Callable[[Context, Any], Awaitable[Any]]
"""Returns what `interrupt` returns in the node, by the value that it was called with; by operations of the context."""

_MARK: Final = "nodes"
"""The field of the input of a step that has records."""


async def ask_user(ctx: Context, value: Any) -> Any:
    """Ask a person what a graph asks by `interrupt`: needs the capability ``user``.

    The value is the question; or a dictionary with the input of the tool ``ask_user``, such as ``question`` and
    ``options``; any other is asked as JSON. The answer is text.
    """
    if isinstance(value, str):
        return await ctx.ask_user(value)
    if isinstance(value, Mapping) and isinstance(value.get("question"), str):
        return await ctx.ask_user(value["question"], **{key: value[key] for key in value if key != "question"})
    return await ctx.ask_user(json.dumps(value, ensure_ascii=False, default=str))


async def run_graph(
    ctx: Context,
    graph: Pregel[Any, Any, Any, Any],
    given: Any,
    *,
    name: str = "graph",
    config: RunnableConfig | None = None,
    context: Any = None,
    on_interrupt: OnInterrupt = ask_user,
    stream: bool = True,
) -> Any:
    """Execute a compiled graph to its end, and return its state.

    Its checkpoints and what its nodes write are steps of the run's journal: a later attempt goes on after the last of
    them, and nodes that have ended are not executed again. The state stays for the next message of the conversation, as
    with ``thread_id`` in LangGraph. What models in it say is emitted as it comes, and what they report as used is
    counted. While it is executed, its nodes must not use operations of `ctx`: see `on_interrupt`.

    Args:
        ctx: Of the agent.
        graph: Compiled; a checkpointer that it has is not used.
        given: Its input. With the state of earlier messages, LangGraph adds it to that.
        name: Of its steps, and of its state in the conversation: one function may execute several graphs.
        config: Further configuration, such as ``recursion_limit`` or ``configurable``.
        context: What nodes get as ``runtime.context``.
        on_interrupt: Answers an `interrupt`. By default a person does, and the run waits without a worker.
        stream: Whether text of models is emitted.

    Raises:
        ConfigurationError: The graph was compiled with ``interrupt_before`` or ``interrupt_after``.
        StepFailed: A checkpoint is larger than the journal takes.
    """
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise ConfigurationError(
            "The graph was compiled with interrupt_before or interrupt_after, which stop it for a debugger. Expected "
            "interrupt() in a node, where a person or a program is to be asked."
        )
    playing = _Playing(
        ctx, graph, name=name, config=config or {}, context=context, on_interrupt=on_interrupt, stream=stream
    )
    return await playing.play(given)


class _Playing:
    def __init__(
        self,
        ctx: Context,
        graph: Pregel[Any, Any, Any, Any],
        *,
        name: str,
        config: RunnableConfig,
        context: Any,
        on_interrupt: OnInterrupt,
        stream: bool,
    ) -> None:
        self._ctx = ctx
        self._name = name
        self._context = context
        self._on_interrupt = on_interrupt
        self._saver = JournalSaver(asyncio.get_running_loop())
        self._graph = graph.copy({"checkpointer": self._saver})
        self._usage = UsageCollector()
        self._speech = Speech(ctx.emit) if stream else None
        self._config = self._configured(config)
        self._nodes: dict[str, str] = {}
        """Names of nodes by the ids of their tasks."""
        self._begun = False
        """Whether the journal has steps of this graph in this run: the input is in its state."""

    async def play(self, given: Any) -> Any:
        """Return the state in which the graph ends."""
        for step in await self._ctx.journal.earlier(self._name):
            if _MARK in step.operation.input:
                self._restore(json.loads(step.text))
        answers: dict[str, Any] = {}
        executed = False
        while True:
            await self._replay()
            state = await self._state()
            asked = state.interrupts if self._begun else ()
            unanswered = [each for each in asked if each.id not in answers]
            for each in unanswered:
                answers[each.id] = await self._on_interrupt(self._ctx, each.value)
            if unanswered:
                continue
            if executed and not asked:
                return state.values
            resume = {each.id: answers[each.id] for each in asked}
            # With None it goes on where it is, which may be its end already.
            await self._execute(Command(resume=resume) if resume else None if self._begun else given)
            executed = True

    async def _replay(self) -> None:
        """Take the steps that an earlier attempt recorded."""
        while (entry := self._ctx.journal.recorded()) is not None:
            operation = entry.finished[0].operation
            if operation.name != CODE_STEP or operation.input.get("name") != self._name or _MARK not in operation.input:
                return
            self._restore(await Wanted(self._ctx.journal, operation, step_value))
            self._begun = True

    def _restore(self, records: list[Mapping[str, Any]]) -> None:
        for record in records:
            self._saver.restore(self._ctx.thread_id, record)

    async def _state(self) -> StateSnapshot:
        return await self._graph.aget_state(self._config)

    async def _execute(self, given: Any) -> None:
        """Execute the graph until it ends or is interrupted, and record what it saves meanwhile."""
        executing = asyncio.create_task(self._consume(given), name=f"graph-{self._name}")
        try:
            while records := await self._saver.take(executing):
                await self._record(records)
            await executing
        except BaseException:
            executing.cancel()
            # What waits for the journal would not end otherwise.
            self._saver.close()
            await asyncio.wait({executing})
            raise

    async def _consume(self, given: Any) -> None:
        stream: AsyncIterator[Any] = self._graph.astream(
            given,
            self._config,
            context=self._context,
            stream_mode=["messages", "tasks"],
            # A node begins when the journal has those before it.
            durability="sync",
            subgraphs=True,
        )
        async for _, mode, data in stream:
            if mode == "tasks":
                self._nodes[data["id"]] = data["name"]
            elif self._speech is not None:
                self._speech.hear(data[0])

    async def _record(self, records: list[Record]) -> None:
        if self._speech is not None:
            self._speech.pause()
        nodes = sorted({self._nodes[each.task_id] for each in records if each.task_id in self._nodes})
        value = Used([each.content for each in records], self._usage.take())
        function = StepFunction(f"The graph {self._name!r}", lambda: value, False, ToolOptions())
        operation = Operation(name=CODE_STEP, input={"name": self._name, _MARK: nodes})
        await Wanted(self._ctx.journal, operation, step_value, function)
        self._begun = True
        self._saver.kept(records)

    def _configured(self, config: RunnableConfig) -> RunnableConfig:
        callbacks = config.get("callbacks")
        place = {**config.get("configurable", {}), "thread_id": self._ctx.thread_id}
        if callbacks is None or isinstance(callbacks, list):
            return {**config, "configurable": place, "callbacks": [*(callbacks or ()), self._usage]}
        callbacks = callbacks.copy()
        callbacks.add_handler(self._usage)
        return {**config, "configurable": place, "callbacks": callbacks}
