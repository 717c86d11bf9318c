"""The `file-send` capability: files for the person, from the agent's directories or written on the spot."""

import asyncio
import os
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import LimitExceeded, ToolFailure
from nova_workers.contracts.content import storable
from nova_workers.contracts.deliveries import Sender
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.files.rules import OutgoingFile, file_name, send_file

_MAX_PATH_CHARS = 4_096
_MAX_CAPTION_CHARS = 1_000
_MAX_NAME_CHARS = 200

_Path = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_PATH_CHARS)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_NAME_CHARS, pattern=r"^[^/\\\x00-\x1f\x7f]+$")]
_Caption = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=_MAX_CAPTION_CHARS),
    AfterValidator(storable),
]


class _Send(ToolInput):
    path: Annotated[_Path | None, Field(description="A file; a relative path starts at your working directory.")] = None
    content: Annotated[str | None, Field(description="In place of a path: the text of the file.")] = None
    name: Annotated[_Name | None, Field(description="What the file is called; needed with content.")] = None
    caption: Annotated[_Caption | None, Field(description="A line that goes with it.")] = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.content is None):
            raise ValueError("give either path or content")
        if self.content is not None and self.name is None:
            raise ValueError("content needs a name, such as report.md")
        return self


class _FileTools:
    def __init__(self, parts: CapabilityParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._max_bytes = parts.settings.tools.send_file_max_bytes

    async def send(self, context: CapabilityContext, given: _Send) -> str:
        if given.content is not None:
            content = given.content.encode()
        else:
            content = await asyncio.to_thread(self._read, context, given.path or "")
        if len(content) > self._max_bytes:
            raise self._too_large(len(content))
        try:
            name = file_name(given.name or given.path or "")
        except ValueError as error:
            raise ToolFailure(f"{error}; give one as name, such as report.md") from error
        sender = Sender(context.tenant_id, context.agent_id, context.thread_id, context.run_id)
        sent = await send_file(self._parts.work, sender, OutgoingFile(name, content, given.caption))
        return f"Sent {sent.name} ({sent.size_bytes} bytes) as {sent.id}."

    def _read(self, context: CapabilityContext, path: str) -> bytes:
        """Return a file's content, at most one byte over the limit. Blocks."""
        if context.cwd is None:
            raise ToolFailure(
                f"You work without files (your trust is {context.agent.trust!r}). Give content and name, not path."
            )
        confinement = Confinement(
            (context.cwd, *(context.readable or context.agent.directories)),
            within=() if context.enclosure is None else context.enclosure.roots,
            beneath=context.readable,
            private=PrivateFiles(self._settings.home, self._settings.workspace_root),
        )
        try:
            with open(confinement.open_file(confinement.resolve(path), os.O_RDONLY), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > self._max_bytes:
                    raise self._too_large(size)
                return file.read(self._max_bytes + 1)
        except OSError as error:
            raise ToolFailure(f"{path!r}: {(error.strerror or 'input or output error').lower()}") from error
        except ValueError as error:
            raise ToolFailure(str(error)) from error

    def _too_large(self, size: int) -> LimitExceeded:
        return LimitExceeded(
            f"A file that is sent has at most {self._max_bytes} bytes, this one {size}. Send less of it, or pack it.",
            limit=self._max_bytes,
        )


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    tool = ToolDeclaration(
        name="file_send",
        description=(
            "Send a file to the user: one of yours by its path, or text that you give as content. "
            "Sending the same file again in one turn changes nothing."
        ),
        input=_Send,
        run=_FileTools(parts).send,
        idempotent=True,
    )
    return ToolCapability("file-send", "Files for the user.", [tool])
