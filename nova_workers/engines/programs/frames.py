"""What a program reports, in the same words for all vendors."""

import asyncio
from dataclasses import dataclass, field

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn import ToolOutcome


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer.

    Attributes:
        whole: Whether it is a paragraph of its own, and not a piece of a stream.
    """

    text: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Announced:
    """The program wrote that it calls one of the turn's tools. The call itself comes through the bridge."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The program's last model call is answered.

    Attributes:
        usage: Of all model calls of this program; None if it does not say.
    """

    usage: TokenUsage | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The program reports that it cannot continue."""

    message: str


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The program used a tool of its own, although all of them are switched off."""

    tool: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The program has exited.

    Attributes:
        complaints: The end of what it wrote to stderr.
    """

    exit_code: int
    complaints: str


@dataclass(frozen=True, slots=True, eq=False)
class BridgeCall:
    """A call of one of the turn's tools, for whose outcome the program waits."""

    id: str
    name: str
    arguments: JsonObject
    outcome: "asyncio.Future[ToolOutcome]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, outcome: ToolOutcome) -> None:
        """Give the program the outcome, unless it stopped waiting."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


Frame = Text | Reasoning | Announced | Finished | Failed | Forbidden | Ended | BridgeCall
"""One report, or the end of the program, or a call that came through the bridge."""
