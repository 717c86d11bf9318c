"""Read, Write and Edit: with the names and arguments of the Anthropic SDK's tools, which models know.

An invalid or truncated image would make the provider refuse the conversation from then on, so `nova_workers.media`
checks what is sent as an image or a PDF.
"""

import asyncio
import base64
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from nova_workers.confined import Confinement
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.native.seam import NativeTool, ToolInput, plain_schema, text_outcome
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure
from nova_workers.media import bytes_problem

__all__ = ["Files", "in_thread"]

T = TypeVar("T")
Given = TypeVar("Given", bound="FileInput")

_MAX_TEXT_BYTES = 256 * 1024
"""Limit of a file that is read completely or edited, and of a range of lines; the SDK's own limit."""
_MAX_MEDIA_BYTES = 3_750_000
"""5 MB in base64: the provider's limit for an image. It allows larger PDFs, but the ledger stores them."""
_MAX_WRITE_BYTES = 5 * 1024 * 1024
_CHUNK_BYTES = 65_536
_FINISH_S = 5.0
"""How long a stopped turn waits for a write in progress, so that it does not happen during a later turn."""

_MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
}

_DESCRIPTIONS = {
    "Read": (
        "Read a file: text, or an image or PDF to look at. A relative path starts at the working directory. A long "
        "text needs view_range, [first line, last line]."
    ),
    "Write": "Write a whole text file, replacing what was there; missing directories are made.",
    "Edit": "Replace an exact piece of a text file. It must occur once, unless replace_all is true.",
}


class FileInput(ToolInput):
    """The file that a call is about."""

    file_path: str


class ReadInput(FileInput):
    """Arguments of Read."""

    view_range: list[int] | None = None


class WriteInput(FileInput):
    """Arguments of Write."""

    content: str


class EditInput(FileInput):
    """Arguments of Edit."""

    old_string: str
    new_string: str
    replace_all: bool | None = None


class Files:
    """The file tools of one turn."""

    def __init__(self, confinement: Confinement, threads: ThreadPoolExecutor) -> None:
        self._confinement = confinement
        self._threads = threads
        self._writing = asyncio.Lock()

    def tools(self) -> list[NativeTool]:
        """Return Read, Write and Edit."""
        return [
            self._tool("Read", ReadInput, self._read),
            self._tool("Write", WriteInput, self._write),
            self._tool("Edit", EditInput, self._edit),
        ]

    def _tool(self, name: str, arguments: type[Given], work: Callable[[Given, Path], ToolOutcome]) -> NativeTool:
        reads_only = name == "Read"

        def perform(call_input: Given) -> ToolOutcome:
            try:
                return work(call_input, self._confinement.resolve(call_input.file_path))
            except UnicodeDecodeError as error:
                raise ToolFailure(f"{name}: not valid UTF-8 text; of binary files only images and PDFs.") from error
            except OSError as error:
                raise ToolFailure(f"{name}: {(error.strerror or 'input or output error').lower()}") from error
            except ValueError as error:
                raise ToolFailure(f"{name}: {error}") from error

        async def run(given: JsonObject) -> ToolOutcome:
            call_input = arguments.read(name, given)
            if reads_only:
                return await in_thread(self._threads, perform, call_input)
            # Of two concurrent edits of one file, one would be lost.
            async with self._writing:
                return await in_thread(self._threads, perform, call_input)

        schema = plain_schema(arguments)
        return NativeTool(ToolDefinition(name, _DESCRIPTIONS[name], schema, idempotent=reads_only), run)

    def _read(self, call_input: ReadInput, target: Path) -> ToolOutcome:
        with self._open(target, os.O_RDONLY) as file:
            size = os.fstat(file.fileno()).st_size
            media = _MEDIA.get(target.suffix.lower())
            if media is not None:
                return _shown(file, size, media)
            if call_input.view_range is None:
                if size > _MAX_TEXT_BYTES:
                    raise ValueError(
                        f"the file has {size} bytes, which exceeds {_MAX_TEXT_BYTES}; read a part with view_range"
                    )
                text = file.read(_MAX_TEXT_BYTES).decode()
            else:
                text = _lines(file, call_input.view_range).decode()
        return text_outcome(text or "(nothing: the file is empty, or has no such lines)")

    def _write(self, call_input: WriteInput, target: Path) -> ToolOutcome:
        data = call_input.content.encode()
        if len(data) > _MAX_WRITE_BYTES:
            raise ValueError(f"the content is over {_MAX_WRITE_BYTES} bytes")
        with self._open(target, os.O_WRONLY, make=True) as file:
            _replace(file, data)
        return text_outcome(f"Wrote {len(data)} bytes to {call_input.file_path}")

    def _edit(self, call_input: EditInput, target: Path) -> ToolOutcome:
        if not call_input.old_string:
            raise ValueError("old_string is empty")
        with self._open(target, os.O_RDWR) as file:
            if os.fstat(file.fileno()).st_size > _MAX_TEXT_BYTES:
                raise ValueError(f"the file exceeds {_MAX_TEXT_BYTES} bytes")
            text = file.read(_MAX_TEXT_BYTES).decode()
            count = text.count(call_input.old_string)
            if count == 0:
                raise ValueError(f"old_string was not found in {call_input.file_path}")
            if count > 1 and not call_input.replace_all:
                raise ValueError(f"old_string occurs {count} times in {call_input.file_path}; it must be unique")
            if len(text) + count * len(call_input.new_string) > _MAX_WRITE_BYTES:
                raise ValueError(f"the result would be over {_MAX_WRITE_BYTES} bytes")
            _replace(file, text.replace(call_input.old_string, call_input.new_string).encode())
        return text_outcome(f"Edited {call_input.file_path}: {count} replacement{'s' if count > 1 else ''}")

    def _open(self, target: Path, flags: int, *, make: bool = False) -> FileIO:
        return FileIO(self._confinement.open_file(target, flags, make=make), "rb" if flags == os.O_RDONLY else "rb+")


async def in_thread(
    threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any, undo: Callable[[T], object] | None = None
) -> T:
    """Run a blocking call on a thread. If canceled, wait for a call that has begun, within a limit.

    Args:
        threads: Where it runs.
        call: The call.
        arguments: What it is given.
        undo: Receives the call's result if the caller was canceled; runs on any thread.
    """
    work = threads.submit(call, *arguments)
    outcome = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        # Only the thread's future knows whether the call has begun.
        if not work.cancel():
            if undo is not None:
                work.add_done_callback(partial(_undo, undo))
            await asyncio.wait((outcome,), timeout=_FINISH_S)
            if outcome.done() and not outcome.cancelled():
                outcome.exception()
        raise


def _undo(undo: Callable[[T], object], work: Future[T]) -> None:
    if work.exception() is None:
        undo(work.result())


def _replace(file: FileIO, data: bytes) -> None:
    file.seek(0)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate()


def _lines(file: FileIO, view_range: Sequence[int]) -> bytes:
    """Return an inclusive range of lines, counted from 1, without reading the rest into memory."""
    if len(view_range) != 2:
        raise ValueError("view_range must be [first line, last line]")
    first, last = view_range[0], view_range[1] if view_range[1] > 0 else sys.maxsize
    found, number = bytearray(), 1
    with os.fdopen(os.dup(file.fileno()), "rb") as lines:
        while number <= last and (piece := lines.readline(_CHUNK_BYTES)):
            if number >= first:
                found += piece
            if len(found) > _MAX_TEXT_BYTES:
                raise ValueError(f"these lines exceed {_MAX_TEXT_BYTES} bytes; take fewer")
            number += piece.endswith(b"\n")
    return bytes(found)


def _shown(file: FileIO, size: int, media_type: str) -> ToolOutcome:
    if size > _MAX_MEDIA_BYTES:
        raise ValueError(f"the file has {size} bytes, which exceeds {_MAX_MEDIA_BYTES} for images and PDFs")
    data = file.read(_MAX_MEDIA_BYTES)
    problem = bytes_problem(media_type, data)
    if problem is not None:
        raise ValueError(f"the file {problem}")
    source = {"type": "base64", "media_type": media_type, "data": base64.standard_b64encode(data).decode("ascii")}
    return ToolOutcome(({"type": "image" if media_type.startswith("image/") else "document", "source": source},))
