"""The `notifications` capability: lets a background run notify the person. Never granted."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from nova_workers.contracts.content import storable
from nova_workers.contracts.deliveries import Sender
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.delivery.rules.from_agents import MAX_NOTIFICATION_CHARS, MAX_NOTIFICATIONS_PER_RUN, notify

_Words = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NOTIFICATION_CHARS),
    AfterValidator(storable),
]


class _Notify(ToolInput):
    message: Annotated[_Words, Field(description="What the user should know, whole: they see nothing else of this.")]


def _reports_to_a_person(context: CapabilityContext) -> bool:
    # An agent below the master of an orchestration reports to its parent, and holds only what that gave it.
    return context.background and (context.place is None or context.place.parent_id is None)


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""

    async def notify_user(context: CapabilityContext, given: _Notify) -> str:
        sender = Sender(context.tenant_id, context.agent_id, context.thread_id, context.run_id)
        new = await notify(parts.work, sender, given.message)
        return "The user will get it." if new else "You have said that already; it was not sent again."

    tool = ToolDeclaration(
        name="notify_user",
        description=(
            "Send the user a message. You work in the background: nobody reads your answer. Use it for what they must "
            f"know or decide, in as few messages as you can; {MAX_NOTIFICATIONS_PER_RUN} are the most."
        ),
        input=_Notify,
        run=notify_user,
        idempotent=True,
    )
    return ToolCapability(
        "notifications",
        "Messages to the user from runs in the background, which get it by themselves.",
        [tool],
        injected=_reports_to_a_person,
    )
