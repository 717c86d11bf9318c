"""Which tools the model may call in one call of it, as the options of a turn say."""

from __future__ import annotations

from collections.abc import Collection

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.run_options import NamedTool, ToolChoice


def choice_of_call(options: EngineOptions, step: int, offered: Collection[str]) -> ToolChoice | None:
    """Return the choice for a model call; None leaves it to the provider's default.

    Args:
        options: Of the turn.
        step: Of the turn, that the call is for. Only the first one is made to call a tool: a turn that had to call one
            in each step would not end.
        offered: Names of the tools that the model is offered.

    Raises:
        EngineFailure: A tool is to be called that is not offered.
    """
    choice = options.tool_choice
    forces = isinstance(choice, NamedTool) or choice == "required"
    if choice is None or (forces and step > 0):
        return None
    name = choice.name if isinstance(choice, NamedTool) else None
    if forces and (name not in offered if name is not None else not offered):
        wanted = "a tool" if name is None else f"the tool {name!r}"
        known = ", ".join(sorted(offered)) or "none"
        raise EngineFailure(
            f"tool_choice: the model is to call {wanted}, and it is not offered. Offered: {known}.",
            kind="unknown",
            retryable=False,
        )
    return choice if offered else None
