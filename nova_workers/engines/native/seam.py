"""A native tool: its definition for the model, and its implementation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.errors import ToolFailure
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.turn import ToolOutcome

Given = TypeVar("Given", bound="ToolInput")

_NOTHING = "(no output)"


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool that the engine runs itself. `run` raises `ToolFailure` with a message for the model."""

    definition: ToolDefinition
    run: Callable[[JsonObject], Awaitable[ToolOutcome]]


class ToolInput(TrueNumbers):
    """The arguments of a tool. Unknown arguments are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def read(cls: type[Given], tool: str, given: JsonObject) -> Given:
        """Return the validated arguments.

        Raises:
            ToolFailure: They are invalid.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ToolFailure(complaint(tool, error), tool=tool) from error


def plain_schema(arguments: type[BaseModel]) -> JsonObject:
    """Return the JSON schema of a tool's arguments, without title and description. It takes 1 ms of CPU."""
    schema = arguments.model_json_schema()
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def complaint(tool: str, error: ValidationError) -> str:
    """Return a message to the model about a call's invalid arguments."""
    problems = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
    return f"{tool}: the arguments have the wrong form: {problems}"


def text_outcome(text: str, *, failed: bool = False) -> ToolOutcome:
    """Return an outcome with a text. Blank text is replaced, since models refuse it."""
    return ToolOutcome((text_block(text if text.strip() else _NOTHING),), failed=failed)
