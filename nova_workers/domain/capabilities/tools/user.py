"""The `user` capability: asks a person, and lets the run wait for the answer."""

from datetime import timedelta
from typing import Annotated

from pydantic import AwareDatetime, Field, ValidationError

from nova_workers.base.clock import Clock
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.waits import MAX_WAIT_S, AskUser, Pause
from nova_workers.domain.capabilities.rules.delegation import check_delegation, granted_delegation
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.ledger.database import Database


class _Ask(ToolInput):
    question: Annotated[str, Field(min_length=1, max_length=10_000, description="The question, with all it needs.")]
    options: Annotated[
        tuple[str, ...], Field(max_length=20, description="Answers to offer. The person may give another one.")
    ] = ()
    only_options: Annotated[bool, Field(description="Take no answer but one of the options.")] = False
    expires_in_s: Annotated[
        float | None, Field(gt=0, le=MAX_WAIT_S, description="Seconds to wait at most. Leave it out to wait for ever.")
    ] = None
    default: Annotated[str | None, Field(description="The answer if nobody answers in time.")] = None
    escalate_to: Annotated[
        str | None, Field(description="Id of the agent to ask if nobody answers in time; one that you may ask.")
    ] = None


class _Sleep(ToolInput):
    until: Annotated[AwareDatetime | None, Field(description="When to go on: RFC 3339 with an offset.")] = None
    seconds: Annotated[float | None, Field(gt=0, le=MAX_WAIT_S, description="Or how long to wait.")] = None


class _UserTools:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def ask(self, context: CapabilityContext, given: _Ask) -> AskUser:
        question = _question(given)
        if question.escalate_to is not None:
            # Escalation asks an agent, so the rules of delegation apply.
            config = granted_delegation(context, "escalate_to")
            await check_delegation(self._database, context, config, question.escalate_to, field="escalate_to")
        return question

    async def sleep(self, _: CapabilityContext, given: _Sleep) -> Pause:
        if (given.until is None) == (given.seconds is None):
            raise InvalidInput("until, seconds: give one of the two.", field="until")
        now = self._clock.now()
        until = given.until or now + timedelta(seconds=given.seconds or 0)
        if until > now + timedelta(seconds=MAX_WAIT_S):
            raise InvalidInput(f"until: {until.isoformat()} is more than a year away.", field="until")
        return Pause(until=until)


def _question(given: _Ask) -> AskUser:
    try:
        return AskUser.model_validate(given.model_dump())
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        raise InvalidInput(f"{where}: {problem['msg']}", field=where) from error


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    tools = _UserTools(parts.database, parts.clock)
    return ToolCapability(
        "user",
        "Asks a person, or waits for a time. The run waits for as long as it takes and costs nothing meanwhile.",
        (
            ToolDeclaration(
                name="ask_user",
                description=(
                    "Ask the person a question and wait for the answer, which may take days. Use it where you cannot "
                    "go on without a decision that is not yours."
                ),
                input=_Ask,
                run=tools.ask,
                # It has no effect before the run waits, so it may be repeated after a crash.
                idempotent=True,
            ),
            ToolDeclaration(
                name="wait_until",
                description="Go on later: at a time, or after so many seconds.",
                input=_Sleep,
                run=tools.sleep,
                idempotent=True,
            ),
        ),
    )
