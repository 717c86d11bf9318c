"""A vendor's program as the turn's model.

The program runs a loop of its own: it asks its model, and calls tools. Here it is made to run in step with the turn: a
call of a tool is the end of a response, and the program waits for the call's result until the turn asks for the next
response, which it does after the step is committed. So journal, authorization, steering, waits and aborts work as in
other engines, because the same code implements them.

A program that cannot continue (the turn waited, was steered, or resumes from its journal; the program or its provider
failed) is ended, and another one gets the whole conversation as its prompt.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.base.errors import EngineFailure
from nova_workers.base.observability.redaction import REDACTED, hide
from nova_workers.contracts.content import Message
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.usage import CallBound, TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.effort import reasoning_effort
from nova_workers.engines.programs.counting import ProgramCount
from nova_workers.engines.programs.failures import forbidden_tool, no_key, program_ended, reported, silent
from nova_workers.engines.programs.frames import BridgeCall, Ended, Failed, Finished, Forbidden
from nova_workers.engines.programs.home import make_home
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.response import ResponseSoFar
from nova_workers.engines.programs.run import ProgramRun
from nova_workers.engines.programs.slot import Slot
from nova_workers.engines.programs.transcript import prompt_of
from nova_workers.engines.programs.vendor import ProgramSettings, Request, Vendor, find_program
from nova_workers.engines.resilience import ModelLimits, Route, TokenEstimate
from nova_workers.engines.tool_turns import OfferedTools, tool_refusal
from nova_workers.engines.turn import Ask, Draft, Response, ToolOutcome, ToolRefused
from nova_workers.engines.turn.answer import answer_request

_PROFILE = "default"
_SETTLE_S = 0.1
"""Silence after which a step has all its calls: a program starts those of one response together.

With 0.03 s a busy machine made two steps of one response now and then, whose calls then did not run concurrently.
"""
_ANNOUNCE_S = 1.0
"""Longest wait for the program to write what it said before a call that came through the bridge."""
_EXPECTED_TOKENS = 8_192
"""Of a response, for budgets: the limit of the other engines."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all turns of an engine share.

    Attributes:
        silence_s: Longest time without a report of a program that waits for its model.
    """

    vendor: Vendor
    settings: ProgramSettings
    models: ProgramModels
    silence_s: float
    slots: asyncio.Semaphore


class ProgramProvider:
    """Implements `nova_workers.engines.resilience.Provider`. One a turn; must be closed."""

    def __init__(self, shared: Shared, options: EngineOptions, tools: OfferedTools, slot: Slot) -> None:
        """Take what all responses of a turn share. Nothing is started before the first response."""
        self._shared = shared
        self._options = options
        self._tools = tools
        self._slot = slot
        self._run: ProgramRun | None = None
        self._route: Route | None = None
        self._count = ProgramCount(shared.models.prices, "")
        self._estimate = TokenEstimate()

    @property
    def name(self) -> str:
        """The engine's name."""
        return self._shared.vendor.name

    def vendor(self, model: str) -> str:
        """See `Provider.vendor`."""
        return self._shared.vendor.name

    def profiles(self, model: str) -> tuple[str, ...]:
        """See `Provider.profiles`. A program has one key."""
        return (_PROFILE,)

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Get the next response. See `Provider.attempt`."""
        run = await self._running(route, ask)
        draft.model = route.model
        try:
            response = await self._read(run, ask, draft)
        except EngineFailure as failure:
            await self._leave()
            raise await self._tool_refusal(failure) or failure from failure
        except BaseException:
            # A subagent was stopped whose turn goes on. The end of that turn ends the program.
            run.freeze()
            raise
        if response.ending != "tools":
            await self._leave()
        return response

    async def estimate_tokens(self, ask: Ask) -> int:
        """See `Provider.estimate_tokens`."""
        schemas = [tool.input_schema for tool in (await self._tools.connect()).values()]
        return self._estimate.of(ask.messages, (self._options.system_prompt, schemas))

    async def bound(self, ask: Ask, model: str) -> CallBound:
        """See `Provider.bound`. No program takes a limit of a response: the agent's is expected, or a usual one."""
        schemas = [tool.input_schema for tool in (await self._tools.connect()).values()]
        read_tokens = self._estimate.at_most(ask.messages, (self._options.system_prompt, schemas))
        produced = self._options.max_tokens or _EXPECTED_TOKENS
        return CallBound(model, read_tokens, produced, 0, self._shared.models.prices.per_token(model))

    def limits(self, model: str) -> ModelLimits:
        """See `Provider.limits`."""
        return self._shared.models.limits(model)

    def freeze(self) -> None:
        """Suspend the program. Returns at once."""
        if self._run is not None:
            self._run.freeze()

    async def close(self) -> None:
        """End the program."""
        await self._leave()

    async def _running(self, route: Route, ask: Ask) -> ProgramRun:
        """Return the program, at the point where it asks its model."""
        run = self._run
        same = self._route is not None and self._route.model == route.model
        if run is not None and same and not ask.steering and _answer(run.waiting, ask.messages):
            return run
        await self._leave()
        self._route = route
        self._count = ProgramCount(self._shared.models.prices, route.model)
        return await self._open(route, ask)

    async def _open(self, route: Route, ask: Ask) -> ProgramRun:
        shared = self._shared
        program = find_program(shared.vendor, shared.settings)
        if shared.settings.api_key is None:
            raise no_key(shared.vendor, shared.vendor.key_variable)
        await self._tools.connect()
        await self._slot.take()
        request = self._request(program, route, ask)
        await shared.vendor.prepare(shared.settings, request)
        home = await asyncio.to_thread(make_home)
        self._run = run = ProgramRun(shared.vendor, home, self._tools.connect)
        try:
            launch = await asyncio.to_thread(shared.vendor.launch, home, shared.settings, request)
            await run.start(launch)
        except EngineFailure:
            await self._leave()
            raise
        return run

    async def _tool_refusal(self, failure: EngineFailure) -> ToolRefused | None:
        names = {name: name for name in await self._tools.connect()}
        return tool_refusal(failure, names, self._tools, numbered=self._shared.vendor.keeps_order)

    async def _leave(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            await run.close()

    def _request(self, program: str, route: Route, ask: Ask) -> Request:
        options = self._options
        schema = options.output_schema
        enforced = schema is not None and self._shared.vendor.enforces(schema)
        parts = [options.system_prompt or ""]
        if schema is not None and not enforced:
            parts.append(answer_request(schema))
        if self._tools.missing:
            parts.append(self._tools.missing)
        return Request(
            program=program,
            model=route.model,
            instructions="\n\n".join(part for part in parts if part.strip()),
            prompt=prompt_of(ask.messages),
            effort=reasoning_effort(options),
            tool_timeout_s=options.tool_timeout_s,
            output_schema=schema if enforced else None,
        )

    async def _read(self, run: ProgramRun, ask: Ask, draft: Draft) -> Response:
        response = ResponseSoFar(draft)
        read_tokens = await self.estimate_tokens(ask)
        while True:
            frame = await run.next(self._patience_s(run, response))
            if frame is None and response.calls:
                run.waiting = tuple(response.calls)
                usage = self._count.step(read_tokens, response.tokens)
                return Response(response.content(self.name), "tools", usage, draft.model)
            if isinstance(frame, Finished):
                rest = self._rest(frame.usage, ask.messages, read_tokens, response.tokens)
                return Response(response.content(self.name), "end", rest, draft.model)
            if frame is None or isinstance(frame, Failed | Forbidden | Ended):
                raise self._failure(frame)
            response.take(frame)
            # Of a response that is stopped or breaks off, this is all that is known.
            draft.usage = self._count.estimate(read_tokens, response.tokens)

    def _failure(self, frame: Failed | Forbidden | Ended | None) -> EngineFailure:
        vendor, settings = self._shared.vendor, self._shared.settings
        match frame:
            case Failed(message):
                secret = settings.api_key
                safe = hide(message.replace(secret, REDACTED) if secret else message)
                text = f"The program {vendor.command!r} reports: {bounds.said(safe)}"
                return reported(message, text, vendor.verdicts)
            case Forbidden(tool):
                return forbidden_tool(vendor, tool)
            case Ended():
                return program_ended(vendor, frame)
            case None:
                return silent(vendor, self._shared.silence_s)

    def _patience_s(self, run: ProgramRun, response: ResponseSoFar) -> float:
        if not response.calls:
            return self._shared.silence_s
        return _ANNOUNCE_S if run.announces_more else _SETTLE_S

    def _rest(
        self, reported_usage: TokenUsage | None, messages: Sequence[Message], read_tokens: int, produced: int
    ) -> TokenUsage:
        if reported_usage is None or not reported_usage.total_tokens:
            return self._count.step(read_tokens, produced)
        rest = self._count.rest(reported_usage)
        if self._count.model_calls == 1:
            self._estimate.learn(messages, reported_usage)
        return rest


def _answer(waiting: Sequence[BridgeCall], messages: Sequence[Message]) -> bool:
    """Give the program the results of the calls that it waits for. Return whether there is one for each."""
    results = [block for block in messages[-1].content if block.get("type") == "tool_result"]
    if not waiting or len(results) != len(waiting):
        return False
    for call, result in zip(waiting, results, strict=True):
        content = tuple(result.get("content") or ())
        call.answer(ToolOutcome(content, failed=result.get("is_error") is True))
    return True
