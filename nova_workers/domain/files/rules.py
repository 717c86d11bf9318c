"""Files that agents send to people: their names, their media types, and their delivery."""

import mimetypes
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from nova_workers.base.errors import existing
from nova_workers.contracts.content import storable
from nova_workers.contracts.deliveries import Sender, SentFileView
from nova_workers.domain.delivery.rules.from_agents import add_to_outbox
from nova_workers.domain.delivery.sql.deliveries import lock_outbox_of_run, withdraw
from nova_workers.domain.files import sql as ledger
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work

MAX_FILES_PER_RUN = 20

_MAX_NAME_CHARS = 200
_BINARY = "application/octet-stream"

# Control characters drive terminals, slashes lead into directories, and marks of direction show a name's end as its
# beginning: "invoice_\u202efdp.exe" looks like a PDF.
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_MORE_TYPES = {
    ".docx": f"{_OPEN_XML}.wordprocessingml.document",
    ".gz": "application/gzip",
    ".js": "text/javascript",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".pptx": f"{_OPEN_XML}.presentationml.presentation",
    ".toml": "text/plain",
    ".xlsx": f"{_OPEN_XML}.spreadsheetml.sheet",
    ".yaml": "text/plain",
    ".yml": "text/plain",
}
# The table of the standard library without those of the machine, so that all workers agree.
_TYPES = {**mimetypes.MimeTypes().types_map[True], **_MORE_TYPES}


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to send."""

    name: str
    """The name as `file_name` returns it."""
    content: bytes
    caption: str | None = None


def file_name(name: str) -> str:
    """Return a name that is safe to show and to save under: the last part of a path, without control characters.

    Raises:
        ValueError: No character remains.
    """
    last = _UNFIT.sub("_", storable(PurePosixPath(name).name).strip())
    stem, dot, suffix = last.rpartition(".")
    if len(last) > _MAX_NAME_CHARS:
        keeps_suffix = bool(stem) and len(suffix) < _MAX_NAME_CHARS // 2
        last = stem[: _MAX_NAME_CHARS - len(suffix) - 1] + dot + suffix if keeps_suffix else last[:_MAX_NAME_CHARS]
    if not last.strip("._ "):
        raise ValueError(f"{name!r} is not the name of a file")
    return last


def media_type_of(name: str) -> str:
    """Return the media type for a name. The content is not checked."""
    return _TYPES.get(PurePosixPath(name).suffix.lower(), _BINARY)


async def send_file(work: Work, sender: Sender, file: OutgoingFile) -> SentFileView:
    """Store a file and add it to the outbox, both or neither. A run sends the same file once.

    Raises:
        LimitExceeded: The run has sent its maximum of files.
    """
    async with work.begin() as tx:
        connection = tx.connection
        await lock_outbox_of_run(connection, sender.run_id)
        known = await ledger.find_same_file(
            connection, sender, name=file.name, caption=file.caption, content=file.content
        )
        if known is not None:
            return known
        sent = await ledger.add_file(
            connection,
            sender,
            name=file.name,
            media_type=media_type_of(file.name),
            caption=file.caption,
            content=file.content,
        )
        shown = sent.model_dump(include={"name", "media_type", "size_bytes", "caption"})
        payload = {"file_id": sent.id, **shown}
        await add_to_outbox(tx, sender, "file", payload, same="file_id", at_most=MAX_FILES_PER_RUN)
        return sent


async def get_file(database: Database, tenant_id: str, file_id: str) -> SentFileView:
    """Return a file without its content.

    Raises:
        NotFound: The tenant has no such file.
    """
    async with database.connection() as connection:
        return existing(await ledger.get_file(connection, tenant_id, file_id), "file", file_id)


async def read_file(database: Database, tenant_id: str, file_id: str) -> tuple[SentFileView, bytes]:
    """Return a file and its content.

    Raises:
        NotFound: The tenant has no such file.
    """
    async with database.connection() as connection:
        return existing(await ledger.read_file(connection, tenant_id, file_id), "file", file_id)


async def delete_file(database: Database, tenant_id: str, file_id: str) -> None:
    """Delete a file, and its delivery if it is still pending.

    Raises:
        NotFound: The tenant has no such file.
    """
    async with database.transaction() as connection:
        agent_id = existing(await ledger.delete_file(connection, tenant_id, file_id), "file", file_id)
        await withdraw(connection, tenant_id, agent_id, "file", field="file_id", named=file_id)
