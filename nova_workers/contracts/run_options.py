"""What a caller gives one run beside its agent's configuration: tools of the caller's own, instructions, bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.authors.rights import BOUND, FREE, MESSAGE, PARTS, authored
from nova_workers.contracts.bodies import Body
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.native import RESERVED_NAMES
from nova_workers.contracts.waits import MAX_ANSWER_CHARS, MAX_CLIENT_TOOLS, MAX_WAIT_S

MAX_INSTRUCTION_CHARS: Final = 50_000

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""What every model provider takes as the name of a tool."""


def _known_tool(name: str) -> str:
    if name not in RESERVED_NAMES:
        raise ValueError(f"{name!r} is no native tool; these are {', '.join(sorted(RESERVED_NAMES))}")
    return name


NativeTool = Annotated[str, StringConstraints(max_length=64), AfterValidator(_known_tool)]


@authored(
    name=FREE,
    description=MESSAGE,
    input_schema=MESSAGE,
    timeout_s=BOUND,
    default=MESSAGE,
)
class ClientTool(Body):
    """A tool that the caller of a run executes. A run whose model calls it waits for the result.

    Attributes:
        input_schema: A JSON schema of an object.
        timeout_s: Longest wait for a result, in seconds; None is no limit.
        default: The result if none is given in time. Without it such a call has failed.
    """

    name: ToolName
    description: Annotated[str, StringConstraints(max_length=10_000)] = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    timeout_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    default: Annotated[str, StringConstraints(min_length=1, max_length=MAX_ANSWER_CHARS)] | None = None

    @model_validator(mode="after")
    def _has_a_time_for_its_default(self) -> Self:
        if self.default is not None and self.timeout_s is None:
            raise ValueError("default is for tools with timeout_s; give that too")
        return self


@authored(
    name=FREE,
)
class NamedTool(Body):
    """The choice of one tool."""

    name: ToolName


ToolChoice = Literal["auto", "none", "required"] | NamedTool
"""Which tools the model may call: any or none (``auto``), none of them, at least one, or this one. The last two are
for the first model call of the run: the later ones are free, so that the model can answer."""


@authored(
    client_tools=PARTS,
    instructions=MESSAGE,
    temperature=BOUND,
    max_output_tokens=BOUND,
    output_schema=MESSAGE,
    tool_choice=PARTS,
    native_tools=BOUND,
)
class RunOptions(Body):
    """What one run has beside its agent's configuration. Every part is optional.

    Attributes:
        client_tools: Tools that the caller executes. None may have the name of a tool of the agent.
        instructions: They follow those of the agent, marked as the caller's.
        temperature: In place of the agent's.
        max_output_tokens: Limit of a response, in tokens; where the agent has a limit, the lower one holds.
        output_schema: JSON schema of the answer, in place of the agent's.
        native_tools: Allow-list of native tools, within those that the agent has; empty allows none.
    """

    client_tools: Annotated[tuple[ClientTool, ...], Field(max_length=MAX_CLIENT_TOOLS)] = ()
    instructions: Annotated[str, StringConstraints(min_length=1, max_length=MAX_INSTRUCTION_CHARS)] | None = None
    temperature: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] | None = None
    max_output_tokens: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    output_schema: dict[str, Any] | None = None
    tool_choice: ToolChoice | None = None
    native_tools: Annotated[tuple[NativeTool, ...], Field(max_length=50)] | None = None

    @model_validator(mode="after")
    def _names_each_tool_once(self) -> Self:
        for index, name in _repeated(self.client_tools):
            raise ValueError(f"client_tools.{index}.name: {name!r} is there twice")
        return self

    def options(self) -> RunOptions | None:
        """Return these options alone, without what a subclass adds; None if there are none."""
        given = self.model_fields_set & RunOptions.model_fields.keys()
        absent = {"client_tools"} if not self.client_tools else set[str]()
        values = {name: getattr(self, name) for name in given - absent if getattr(self, name) is not None}
        return RunOptions.model_construct(_fields_set=set(values), **values) if values else None

    def stored(self) -> JsonObject:
        """Return the options as JSON, without those that are not given."""
        return self.model_dump(mode="json", exclude_unset=True)

    def over(self, agent: AgentSpec) -> AgentSpec:
        """Return a configuration with what these options replace in it."""
        replaced: dict[str, Any] = {}
        if self.temperature is not None:
            replaced["temperature"] = self.temperature
        if self.output_schema is not None:
            replaced["output_schema"] = self.output_schema
        if self.max_output_tokens is not None:
            replaced["max_tokens"] = min(self.max_output_tokens, agent.max_tokens or self.max_output_tokens)
        if self.native_tools is not None:
            allowed = agent.native_tools
            replaced["native_tools"] = tuple(name for name in self.native_tools if allowed is None or name in allowed)
        return agent.model_copy(update=replaced) if replaced else agent


LACKING_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "claude_agent": frozenset({"temperature", "tool_choice"}),
    "codex": frozenset({"temperature", "max_output_tokens", "tool_choice"}),
    "gemini": frozenset({"temperature", "max_output_tokens", "tool_choice"}),
}
"""Options of a run that engines cannot have, by the engine: their programs have no such option."""


def _repeated(tools: tuple[ClientTool, ...]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            yield index, tool.name
        seen.add(tool.name)


class StoredOptions(RunOptions):
    """The options of a run as its row has them: those of its caller, and what the fleet itself adds.

    Attributes:
        trial: Whether it is a run of an evaluation, whose tool calls are replayed. A release that does not know this
            refuses the value, and leaves the run to a worker that does.
    """

    trial: bool = False
