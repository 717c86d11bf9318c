"""Read, Write and Edit: the SDK's file tools, confined to the agent's directories.

The SDK resolves every symlink of a path, checks that the result lies inside, and works on what it checked. Around it we
do what it does not: its tools block, so they run on threads; and a file that only calls itself an image would make the
provider refuse the conversation from then on, so what is sent as an image or a PDF must be one.

What no check of a path can stop: whoever may write in these directories from outside (another program on the machine)
can exchange a directory for a link between the check and the use. Trust such programs, or give agents their own place.
"""

import asyncio
import base64
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from anthropic.lib.tools import ToolError
from anthropic.lib.tools.agent_toolset import (
    AgentToolContext,
    beta_edit_tool,
    beta_read_tool,
    beta_write_tool,
    resolve_path,
)
from pydantic import ValidationError

from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.engines.native.seam import NativeTool, complaint, text_outcome
from nova_workers.engines.toolbox import ToolDefinition
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure

__all__ = ["Files", "in_thread"]

T = TypeVar("T")

_MAX_PDF_BYTES = 5 * 1024 * 1024
_MAX_WRITE_BYTES = 5 * 1024 * 1024
_FINISH_S = 5.0
"""A write that has begun is waited for when its turn is stopped, so that it cannot land in somebody else's turn."""

_SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF-",),
}

_DESCRIPTIONS = {
    "Read": (
        "Read a file: text, or an image or PDF to look at. A relative path starts at the working directory. A long "
        "text needs view_range, [first line, last line]."
    ),
    "Write": "Write a whole text file, replacing what was there; missing directories are made.",
    "Edit": "Replace an exact piece of a text file. It must occur once, unless replace_all is true.",
}


class Files:
    """The file tools of one turn."""

    def __init__(self, roots: Sequence[str], threads: ThreadPoolExecutor) -> None:
        """Confine the tools to `roots`, at least one; relative paths start at the first."""
        workdir, *others = roots
        self.context = AgentToolContext(
            workdir=workdir, allowed_roots=[Path(other) for other in others], max_pdf_bytes=_MAX_PDF_BYTES
        )
        self._threads = threads
        self._writing = asyncio.Lock()

    def tools(self) -> list[NativeTool]:
        """Return Read, Write and Edit."""
        return [
            self._adapt("Read", beta_read_tool(self.context), self._read),
            self._adapt("Write", beta_write_tool(self.context), self._change),
            self._adapt("Edit", beta_edit_tool(self.context), self._change),
        ]

    def _adapt(self, name: str, tool: Any, run: Callable[..., Any]) -> NativeTool:
        definition = ToolDefinition(name, _DESCRIPTIONS[name], _plain(tool.input_schema), idempotent=name == "Read")
        return NativeTool(definition, lambda given: run(name, tool, given))

    async def _read(self, name: str, tool: Any, given: JsonObject) -> ToolOutcome:
        return await in_thread(self._threads, self._call, name, tool, given)

    async def _change(self, name: str, tool: Any, given: JsonObject) -> ToolOutcome:
        content = given.get("content")
        if isinstance(content, str) and len(content.encode(errors="replace")) > _MAX_WRITE_BYTES:
            raise ToolFailure(f"{name}: the content is over {_MAX_WRITE_BYTES} bytes.", tool=name)
        # Two edits of one file in one step would lose one of them.
        async with self._writing:
            return await in_thread(self._threads, self._call, name, tool, given)

    def _call(self, name: str, tool: Any, given: JsonObject) -> ToolOutcome:
        try:
            self._refuse_special(name, given.get("file_path"))
            result = asyncio.run(tool.call(given))
        except ToolError as error:
            raise ToolFailure(f"{name}: {_said(error)}", tool=name) from error
        except ValueError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolFailure(complaint(name, error.__cause__), tool=name) from error
            raise ToolFailure(f"{name}: {error}", tool=name) from error
        if isinstance(result, str):
            return text_outcome(result if result or name != "Read" else "(the file is empty)")
        return ToolOutcome(tuple(_checked(dict(block)) for block in result))

    def _refuse_special(self, name: str, path: object) -> None:
        """Refuse what is there and no file. Opening a named pipe would wait for its other end for good."""
        if not isinstance(path, str):
            return
        try:
            mode = resolve_path(self.context, path).stat().st_mode
        except OSError:
            return
        if not stat.S_ISREG(mode):
            raise ToolFailure(f"{name}: {path!r} is not a regular file.", tool=name)


async def in_thread(threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call on a thread. When cancelled, a call that has begun is waited for, within a bound."""
    work = threads.submit(call, *arguments)
    outcome = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        # Of the two futures, only the thread's own knows whether it has begun.
        if not work.cancel():
            await asyncio.wait((outcome,), timeout=_FINISH_S)
            if outcome.done() and not outcome.cancelled():
                outcome.exception()
        raise


def _plain(schema: JsonObject) -> JsonObject:
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def _said(error: ToolError) -> str:
    # The SDK begins with its own name of the tool.
    said = str(error)
    _, found, rest = said.partition(": ")
    return rest if found else said


def _checked(block: ContentBlock) -> ContentBlock:
    source = block.get("source")
    if not isinstance(source, dict):
        return block
    signatures = _SIGNATURES.get(str(source.get("media_type")), ())
    head = base64.b64decode(str(source["data"])[:64])
    if not head.startswith(signatures):
        return text_block(f"The file's name says {source['media_type']}, and its content is something else.")
    return block
