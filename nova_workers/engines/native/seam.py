"""One native tool: what the model is told of it, and what runs it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure

__all__ = ["NativeTool", "ToolInput", "complaint", "plain_schema", "text_outcome"]

Given = TypeVar("Given", bound="ToolInput")

_NOTHING = "(no output)"


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool that the engine runs itself. `run` raises `ToolFailure` for what the model should be told."""

    definition: ToolDefinition
    run: Callable[[JsonObject], Awaitable[ToolOutcome]]


class ToolInput(BaseModel):
    """The arguments of a tool. What a model adds of its own is let pass and not used."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def read(cls: type[Given], tool: str, given: JsonObject) -> Given:
        """Return the arguments, checked.

        Raises:
            ToolFailure: They have the wrong form.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ToolFailure(complaint(tool, error), tool=tool) from error


def plain_schema(arguments: type[BaseModel]) -> JsonObject:
    """Return the JSON schema of a tool's arguments, without what only a reader of code needs."""
    schema = arguments.model_json_schema()
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def complaint(tool: str, error: ValidationError) -> str:
    """Return what is wrong with a call's arguments, for the model."""
    problems = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
    return f"{tool}: the arguments have the wrong form: {problems}"


def text_outcome(text: str, *, failed: bool = False) -> ToolOutcome:
    """Return an outcome with a text. No model takes a text block without a visible character."""
    return ToolOutcome((text_block(text if text.strip() else _NOTHING),), failed=failed)
