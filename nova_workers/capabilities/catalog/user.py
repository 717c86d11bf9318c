"""The `user` capability: asks a person, and lets the run wait for the answer."""

from datetime import timedelta
from typing import Annotated

from pydantic import AwareDatetime, Field, ValidationError

from nova_workers.capabilities.seam import Capability, CapabilityContext, CapabilityParts, ToolDeclaration, ToolInput
from nova_workers.capabilities.serving import ToolCapability
from nova_workers.clock import Clock
from nova_workers.contracts.waits import MAX_WAIT_S, AskUser, Pause
from nova_workers.errors import InvalidInput

__all__ = ["capability"]


class _Ask(ToolInput):
    question: Annotated[str, Field(min_length=1, max_length=10_000, description="The question, with all it needs.")]
    options: Annotated[
        tuple[str, ...], Field(max_length=20, description="What there is to choose from. Leave it out for free text.")
    ] = ()
    expires_in_s: Annotated[
        float | None, Field(gt=0, le=MAX_WAIT_S, description="Seconds to wait at most. Leave it out to wait for ever.")
    ] = None
    default: Annotated[str | None, Field(description="The answer if nobody answers in time.")] = None
    escalate_to: Annotated[str | None, Field(description="Id of the agent to ask if nobody answers in time.")] = None


class _Sleep(ToolInput):
    until: Annotated[AwareDatetime | None, Field(description="When to go on: RFC 3339 with an offset.")] = None
    seconds: Annotated[float | None, Field(gt=0, le=MAX_WAIT_S, description="Or how long to wait.")] = None


async def _ask(context: CapabilityContext, given: _Ask) -> AskUser:
    if given.escalate_to == context.agent_id:
        raise InvalidInput("escalate_to: you cannot be asked in a person's place by yourself.", field="escalate_to")
    try:
        return AskUser.model_validate(given.model_dump())
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        raise InvalidInput(f"{where}: {problem['msg']}", field=where) from error


class _Sleeper:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def sleep(self, _: CapabilityContext, given: _Sleep) -> Pause:
        if (given.until is None) == (given.seconds is None):
            raise InvalidInput("until, seconds: give one of the two.", field="until")
        now = self._clock.now()
        until = given.until or now + timedelta(seconds=given.seconds or 0)
        if until > now + timedelta(seconds=MAX_WAIT_S):
            raise InvalidInput(f"until: {until.isoformat()} is more than a year away.", field="until")
        return Pause(until=until)


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
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
                run=_ask,
                # It has no effect before the run waits: a crash until then leaves nothing behind.
                idempotent=True,
            ),
            ToolDeclaration(
                name="wait_until",
                description="Go on later: at a time, or after so many seconds.",
                input=_Sleep,
                run=_Sleeper(parts.clock).sleep,
                idempotent=True,
            ),
        ),
    )
