"""The Claude Code program as a child process, as a transport of the SDK.

Not the SDK's own transport (0.2.187, `_internal/transport/subprocess_cli.py`), because that one

- starts the program in our process group, so that nothing but the program itself could be killed with it;
- gives it our whole environment, secrets included;
- gives it the system prompt and the headers of MCP servers as arguments, which every user of the machine can read;
- closes by waiting up to ten seconds for the program to end by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from claude_agent_sdk import Transport

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.programs.process import Launch, ProgramProcess

KEY_FD_VARIABLE = "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"
"""Names the descriptor from which the program reads its key."""

_ENDED = "The Claude Code program has ended"


class ClaudeProcess(Transport):
    """One run of the program. `on_message` gets each of its messages first, in order."""

    def __init__(self, launch: Launch, on_message: Callable[[JsonObject], None]) -> None:
        self._process = ProgramProcess(launch)
        self._on_message = on_message
        self._writing = asyncio.Lock()
        self._closed = False

    @property
    def complaints(self) -> str:
        """The last lines that the program wrote to stderr."""
        return self._process.complaints

    async def connect(self) -> None:
        """Start the program.

        Raises:
            OSError: It cannot be started.
            ConnectionError: The conversation was closed meanwhile.
        """
        if self._closed:
            raise ConnectionError("The conversation was closed before the program started")
        await self._process.start()
        if self._closed:
            await self._process.close()
            raise ConnectionError("The conversation was closed while the program started")

    def is_ready(self) -> bool:
        """Return whether the program runs."""
        return self._process.runs and not self._closed

    async def write(self, data: str) -> None:
        """Write to the program.

        Raises:
            ConnectionError: It does not read any more.
        """
        async with self._writing:
            if not self.is_ready():
                raise ConnectionError(_ENDED)
            await self._process.write(data.encode())

    async def end_input(self) -> None:
        """Close the program's input."""
        self._process.end_input()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages that the program writes, until it ends."""
        async for message in self._process.messages():
            self._on_message(message)
            yield message
        if not self._closed:
            # The SDK may be waiting for a response; only an error ends that wait.
            raise ConnectionError(_ENDED)

    def freeze(self) -> None:
        """Suspend the program. Returns at once; `close` ends it."""
        if not self._closed:
            self._process.freeze()

    async def close(self) -> None:
        """End the program and all its descendants. Calling it again changes nothing."""
        self._closed = True
        await self._process.close()
