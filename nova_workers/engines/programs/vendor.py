"""The seam to one vendor's program: above it what all programs share, below it one command line and its output."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.programs.frames import Frame
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.programs.transcript import Prompt
from nova_workers.engines.tool_schemas import ToolLimits
from nova_workers.engines.verdicts import VerdictTable


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Settings that are the same in all turns of a process.

    Attributes:
        environment: What the program may have of the worker's environment.
        program: The executable; None looks on the PATH.
        api_key: None makes its turns fail as ``auth_failure``.
        base_url: None is the vendor's own.
        max_processes: Most turns that have a program at the same time; others wait.
        fallbacks: Models to use instead, in this order, if the wanted one is unavailable.
    """

    environment: Mapping[str, str]
    program: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    max_processes: int = 8
    fallbacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What one run of a program is started with.

    Attributes:
        program: The executable.
        model: The vendor's name of the model.
        instructions: The system prompt.
        prompt: The conversation.
        effort: The reasoning effort to ask for; None leaves it to the model.
        tool_timeout_s: Longest wait for a call of a tool.
        output_schema: The form of the answer, if the program can enforce it.
    """

    program: str
    model: str
    instructions: str
    prompt: Prompt
    effort: str | None
    tool_timeout_s: float
    output_schema: Mapping[str, Any] | None = None


class Vendor(Protocol):
    """One vendor's program. Stateless: one object serves all turns."""

    @property
    def name(self) -> str:
        """The engine's name."""
        ...

    @property
    def command(self) -> str:
        """The name of the executable."""
        ...

    @property
    def package(self) -> str:
        """The npm package that has it."""
        ...

    @property
    def key_variable(self) -> str:
        """The vendor's variable for the key."""
        ...

    @property
    def limits(self) -> ToolLimits:
        """What the provider of its models takes of a tool list."""
        ...

    @property
    def verdicts(self) -> VerdictTable:
        """What the errors mean that the program reports."""
        ...

    @property
    def keeps_order(self) -> bool:
        """Whether the provider gets the tools of the bridge in their order, and no others."""
        ...

    def enforces(self, schema: Mapping[str, Any]) -> bool:
        """Return whether the program can make the model answer in this form."""
        ...

    async def prepare(self, settings: ProgramSettings, request: Request) -> None:
        """Find out what the installed version offers the model of a request. Called before each `launch`.

        Raises:
            EngineFailure: Nothing shows that it has no tools of its own.
        """
        ...

    def launch(self, home: Home, settings: ProgramSettings, request: Request) -> Launch:
        """Write the program's settings into the home, and return how to start it. Blocks briefly."""
        ...

    def frames(self, message: JsonObject) -> Iterable[Frame]:
        """Return the frames of an object that the program wrote; none if it has no meaning here."""
        ...


def find_program(vendor: Vendor, settings: ProgramSettings) -> str:
    """Return the path of the program.

    Raises:
        EngineFailure: It is not installed.
    """
    given = str(settings.program or vendor.command)
    found = shutil.which(given, path=settings.environment.get("PATH", os.defpath))
    if found is None:
        where = "is not on the PATH of this worker" if settings.program is None else "is not there, or not executable"
        raise EngineFailure(
            f"The engine {vendor.name!r} needs the program {given!r}, which {where}. Install it with "
            f"`npm install -g {vendor.package}`, or set NOVA_{vendor.name.upper()}__PROGRAM to where it is.",
            kind="unknown",
            retryable=False,
        )
    return found


async def why_not_usable(vendor: Vendor, settings: ProgramSettings) -> str | None:
    """Return why turns cannot use the program; None if it is there and has a key. Starts nothing: that may cost 1 s."""
    try:
        await asyncio.to_thread(find_program, vendor, settings)
    except EngineFailure as failure:
        return failure.message
    return None if settings.api_key else "it has no key"
