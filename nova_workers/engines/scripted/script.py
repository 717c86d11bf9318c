"""The script that the scripted engine runs: its format, and where it is found.

A script is a list of items. Each says what the model does next. An item with a tool ends a response; the items after it
form the next one::

    [
        {"think": "I should look it up."},
        {"say": "Let me see. ", "tokens_per_s": 50},
        {"tool": {"name": "memory_list", "input": {}}},
        {"sleep_s": 0.5},
        {"say": "You like tea."},
    ]

Within one item the order is think, sleep, say, error or crash, tool.
"""

from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.contracts.content import Message, text_of
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.usage import TokenUsage

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedTool(_Value):
    """A call. A tool of one of the turn's MCP servers is called, after `sleep_s`; any other is simulated."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    input: Any = Field(default_factory=dict[str, Any])
    """The model's arguments: an object, or a value that the turn must reject."""
    id: Annotated[str, Field(max_length=1_000)] | None = None
    """The call's id; None generates one that is the same in every attempt."""
    result: Any = "ok"
    """The tool's result; anything but a string is converted to JSON."""
    sleep_s: Seconds = 0.0
    fail: bool | str = False
    """Whether it fails, or the message of the failure."""
    idempotent: bool = False


class ScriptedError(_Value):
    """A failure of the model."""

    kind: EngineErrorKind = "model_error"
    message: str = "The script raises this error"
    retryable: bool = False


class ScriptedUsage(_Value):
    """The reported usage of the response."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = 0.0

    def value(self) -> TokenUsage:
        """Return it as the contract's type."""
        return TokenUsage(**self.model_dump())


class ScriptItem(_Value):
    """One or more actions of the model, in a fixed order."""

    think: str | None = None
    say: str | None = None
    tokens_per_s: Annotated[float, Field(gt=0)] | None = None
    token_delay_ms: Annotated[float, Field(ge=0)] | None = None
    sleep_s: Seconds = 0.0
    tool: ScriptedTool | tuple[ScriptedTool, ...] | None = None
    error: ScriptedError | None = None
    crash: Literal["exit", "raise"] | None = None
    """``exit`` ends the process at once, like SIGKILL; ``raise`` simulates a bug in the engine."""
    usage: ScriptedUsage | None = None

    @model_validator(mode="after")
    def _one_pace(self) -> "ScriptItem":
        if self.tokens_per_s is not None and self.token_delay_ms is not None:
            raise ValueError("give tokens_per_s or token_delay_ms, not both")
        return self

    @property
    def token_delay_s(self) -> float:
        """Seconds between two tokens; 0 is without delay."""
        if self.tokens_per_s is not None:
            return 1 / self.tokens_per_s
        return (self.token_delay_ms or 0.0) / 1000

    @property
    def tools(self) -> tuple[ScriptedTool, ...]:
        """The calls that end the response here; empty if it continues."""
        if self.tool is None:
            return ()
        return self.tool if isinstance(self.tool, tuple) else (self.tool,)


ScriptedResponse = tuple[ScriptItem, ...]
"""The items of a model response; only the last may have tools."""

_script = TypeAdapter(tuple[ScriptItem, ...])


def find_script(message: Message, options: EngineOptions) -> tuple[ScriptedResponse, ...] | None:
    """Return the responses of the message's script, or else of the engine options'; None if there is no script.

    Raises:
        EngineFailure: The script does not have the format above; the message says where.
    """
    raw = _script_in(text_of(message.content))
    if raw is None:
        raw = options.engine_config.get("script")
    if raw is None:
        return None
    try:
        return _responses(_script.validate_python(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EngineFailure(
            f"The script is invalid: {where or 'script'}: {first['msg']}", kind="unknown", retryable=False
        ) from error


def _script_in(text: str) -> object:
    if not text.lstrip().startswith("{") or '"script"' not in text:
        return None
    # The prompt of a work order ends with a paragraph that is the fleet's own.
    for written in (text, text.rpartition("\n\n")[0]):
        try:
            value = orjson.loads(written)
        except orjson.JSONDecodeError:
            continue
        return value.get("script") if isinstance(value, dict) else None
    # An ordinary message that begins with a brace.
    return None


def _responses(items: tuple[ScriptItem, ...]) -> tuple[ScriptedResponse, ...]:
    responses: list[ScriptedResponse] = []
    current: list[ScriptItem] = []
    for item in items:
        current.append(item)
        if item.tools:
            responses.append(tuple(current))
            current = []
    if current:
        responses.append(tuple(current))
    return tuple(responses)
