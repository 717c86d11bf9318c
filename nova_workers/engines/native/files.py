"""Read, Write and Edit: with the names and arguments of the Anthropic SDK's tools, which models know.

An invalid or truncated image would make the provider refuse the conversation from then on, so `nova_workers.base.media`
checks what is sent as an image or a PDF.
"""

import asyncio
import base64
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeVar

from nova_workers.base.confined import Confinement
from nova_workers.base.errors import ToolFailure
from nova_workers.base.media import bytes_problem
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.native.seam import NativeTool, ToolInput, plain_schema, text_outcome
from nova_workers.engines.native.texts import UTF_8, TextForm, marked_form, read_text, shown_text
from nova_workers.engines.turn import ToolOutcome

T = TypeVar("T")
Given = TypeVar("Given", bound="FileInput")

_MAX_TEXT_BYTES = 256 * 1024
"""Limit of a file that is read completely or edited, and of a range of lines; the SDK's own limit."""
_MAX_MEDIA_BYTES = 3_750_000
"""5 MB in base64: the provider's limit for an image. It allows larger PDFs, but the ledger stores them."""
_MAX_WRITE_BYTES = 5 * 1024 * 1024
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
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
    "Write": (
        "Write a whole text file, replacing what was there; missing directories are made. A file that is there keeps "
        "its encoding, its line ends and its permissions."
    ),
    "Edit": (
        "Replace an exact piece of a text file. It must occur once, unless replace_all is true. Whether lines end with "
        "LF or CRLF does not matter: the file keeps its own line ends and encoding."
    ),
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


_DEFINITIONS: Final = {
    name: ToolDefinition(name, _DESCRIPTIONS[name], plain_schema(arguments), idempotent=name == "Read")
    for name, arguments in (("Read", ReadInput), ("Write", WriteInput), ("Edit", EditInput))
}


class Files:
    """The file tools of one turn."""

    def __init__(
        self, confinement: Confinement, threads: ThreadPoolExecutor, *, writing: Confinement | None = None
    ) -> None:
        """Open files in the directories of `confinement`; write in those of `writing`, if they are others."""
        self._confinement = confinement
        self._writable = writing or confinement
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
                return work(call_input, self._resolve(call_input.file_path, reads_only=reads_only))
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

        return NativeTool(_DEFINITIONS[name], run)

    def _resolve(self, path: str, *, reads_only: bool) -> Path:
        target = self._confinement.resolve(path)
        if reads_only or self._writable is self._confinement:
            return target
        try:
            return self._writable.resolve(path)
        except ValueError as error:
            raise ValueError(f"{error}; you may read it, and not write it") from error

    def _read(self, call_input: ReadInput, target: Path) -> ToolOutcome:
        with FileIO(self._confinement.open_file(target, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            media = _MEDIA.get(target.suffix.lower())
            if media is not None:
                return _shown(file, size, media)
            if call_input.view_range is None:
                if size > _MAX_TEXT_BYTES:
                    raise ValueError(
                        f"the file has {size} bytes, which exceeds {_MAX_TEXT_BYTES}; read a part with view_range"
                    )
                text, form = shown_text(file.read(_MAX_TEXT_BYTES))
            else:
                text, form = _lines(file, size, call_input.view_range)
        outcome = text_outcome(text or "(nothing: the file is empty, or has no such lines)")
        if form.codec == UTF_8.codec:
            return outcome
        note = text_block(f"[The file is in {form.name}, which Edit and Write keep.]")
        return replace(outcome, content=(*outcome.content, note))

    def _write(self, call_input: WriteInput, target: Path) -> ToolOutcome:
        if len(call_input.content.encode()) > _MAX_WRITE_BYTES:
            raise ValueError(f"the content is over {_MAX_WRITE_BYTES} bytes")
        said = ""

        def content(before: FileIO | None) -> bytes:
            nonlocal said
            data, kept = _in_form_of(before, call_input.content)
            said = f"Wrote {len(data)} bytes to {call_input.file_path}{kept}"
            return data

        self._writable.replace_file(target, content, make=True)
        return text_outcome(said)

    def _edit(self, call_input: EditInput, target: Path) -> ToolOutcome:
        if not call_input.old_string:
            raise ValueError("old_string is empty")
        count = 0

        def content(before: FileIO | None) -> bytes:
            nonlocal count
            assert before is not None  # noqa: S101 - nothing is made
            if os.fstat(before.fileno()).st_size > _MAX_TEXT_BYTES:
                raise ValueError(f"the file exceeds {_MAX_TEXT_BYTES} bytes")
            data, count = read_text(before.read(_MAX_TEXT_BYTES)).replaced(
                call_input.old_string,
                call_input.new_string,
                every=bool(call_input.replace_all),
                most_chars=_MAX_WRITE_BYTES,
            )
            return data

        self._writable.replace_file(target, content)
        return text_outcome(f"Edited {call_input.file_path}: {count} replacement{'s' if count > 1 else ''}")


async def in_thread(
    threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any, undo: Callable[[T], object] | None = None
) -> T:
    """Run a blocking call on a thread. If canceled, wait for a call that has begun, within a limit.

    Args:
        threads: Where it runs.
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


def _in_form_of(before: FileIO | None, content: str) -> tuple[bytes, str]:
    """Return a content as the text that is there is stored, and words about it. In UTF-8 where there is no text."""
    if before is None or os.fstat(before.fileno()).st_size > _MAX_WRITE_BYTES:
        return content.encode(), ""
    try:
        stored = read_text(before.read(_MAX_WRITE_BYTES))
    except ValueError:
        return content.encode(), ""
    data, form = stored.rewritten(content)
    if form.codec == stored.form.codec:
        return data, "" if form.codec == UTF_8.codec else f", in {form.name} as before"
    return data, f", in {form.name}, since {stored.form.name} does not have all of its characters"


def _lines(file: FileIO, size: int, view_range: Sequence[int]) -> tuple[str, TextForm]:
    """Return an inclusive range of lines, counted from 1, without reading the rest into memory; and the file's form."""
    if len(view_range) != 2:
        raise ValueError("view_range must be [first line, last line]")
    first, last = view_range[0], view_range[1] if view_range[1] > 0 else sys.maxsize
    form = marked_form(file.read(4))
    file.seek(0)
    if form is not None and form.codec != UTF_8.codec:
        if size > _MAX_WRITE_BYTES:
            raise ValueError(f"the file has {size} bytes, which exceeds {_MAX_WRITE_BYTES} for one in {form.name}")
        text, _ = shown_text(file.read(_MAX_WRITE_BYTES))
        part = "".join(_LINE.findall(text)[max(first, 1) - 1 : last])
        if len(part) > _MAX_TEXT_BYTES:
            raise ValueError(f"these lines exceed {_MAX_TEXT_BYTES} bytes; take fewer")
        return part, form
    if form is not None:
        file.seek(len(form.mark))
    found, number = bytearray(), 1
    with os.fdopen(os.dup(file.fileno()), "rb") as lines:
        while number <= last and (piece := lines.readline(_CHUNK_BYTES)):
            if number >= first:
                found += piece
            if len(found) > _MAX_TEXT_BYTES:
                raise ValueError(f"these lines exceed {_MAX_TEXT_BYTES} bytes; take fewer")
            number += piece.endswith(b"\n")
    return shown_text(bytes(found), form)


def _shown(file: FileIO, size: int, media_type: str) -> ToolOutcome:
    if size > _MAX_MEDIA_BYTES:
        raise ValueError(f"the file has {size} bytes, which exceeds {_MAX_MEDIA_BYTES} for images and PDFs")
    data = file.read(_MAX_MEDIA_BYTES)
    problem = bytes_problem(media_type, data)
    if problem is not None:
        raise ValueError(f"the file {problem}")
    source = {"type": "base64", "media_type": media_type, "data": base64.standard_b64encode(data).decode("ascii")}
    return ToolOutcome(({"type": "image" if media_type.startswith("image/") else "document", "source": source},))
