"""The file of a backup: a tar with what `pg_dump` wrote, in its own format, and a manifest behind it.

The manifest is written last, so a file that was cut off has none. `tar xf FILE database.dump` extracts the dump alone.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.errors import InvalidInput, NovaError

__all__ = ["FORMAT", "Backup", "Manifest", "NotWritten", "open_backup", "write_backup"]

FORMAT: Final = 1

_DUMP = "database.dump"
_MANIFEST = "manifest.json"
_BLOCK = tarfile.BLOCKSIZE
_AT_ONCE_BYTES = 1 << 20
_PRIVATE = 0o600


class NotWritten(NovaError):
    """The file of a backup cannot be written."""

    code = "not_written"


class Manifest(BaseModel):
    """What a backup holds.

    Attributes:
        format: Of the file.
        nova: Version of the code that took it.
        schema_revision: The migration that the database was at.
        taken_at: The moment that it shows, by the database's clock.
        postgres: Major version of the server.
        pg_dump: Major version of the program.
        pgvector: Version of the extension.
        roles: Roles with rights on something in it. They are of the server, and so not in the backup.
        master_keys: Ids of the master keys under which secrets in it are encrypted. The keys are not in the backup.
        rows: Rows of each table at that moment.
        dump_bytes: Size of the dump.
        dump_sha256: Its digest.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = FORMAT
    nova: str
    schema_revision: str
    taken_at: datetime
    postgres: int
    pg_dump: int
    pgvector: str
    roles: tuple[str, ...]
    master_keys: tuple[str, ...]
    rows: Mapping[str, int]
    dump_bytes: int
    dump_sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete file: its manifest, and where in it the dump begins."""

    path: Path
    manifest: Manifest
    offset: int


async def write_backup(path: Path, dump: AsyncIterator[bytes], manifest: Callable[[int, str], Manifest]) -> Manifest:
    """Write a backup that only this user may read. It has its name only once it is complete and on disk.

    Args:
        path: Its name.
        dump: What `pg_dump` writes.
        manifest: Called at the end, with the size and the digest of the dump.

    Raises:
        NotWritten: The file cannot be written. Nothing is left.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _writing(path):
            output = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb", buffering=0)
        try:
            made = await _write(path, output, dump, manifest)
        finally:
            output.close()
        with _writing(path):
            unfinished.replace(path)
            _sync(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return made


def open_backup(path: Path) -> Backup:
    """Read the manifest of a backup, and compare the dump with its digest.

    Raises:
        InvalidInput: It is no backup, or damaged.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                members = {member.name: member for member in tar.getmembers()}
                dump, body = members[_DUMP], tar.extractfile(members[_MANIFEST])
                manifest = Manifest.model_validate_json(b"" if body is None else body.read())
        except (tarfile.TarError, KeyError, ValidationError, EOFError) as error:
            raise InvalidInput(
                f"{str(path)!r} is no file of `nova backup`, or only a part of one ({_words(error)}). Take another.",
                field="file",
            ) from error
        if dump.size != manifest.dump_bytes or _digest(file, dump) != manifest.dump_sha256:
            raise InvalidInput(
                f"{str(path)!r} is damaged: its dump is not the one that was written, by size or digest. Take another "
                "file.",
                field="file",
            )
    return Backup(path, manifest, dump.offset_data)


async def _write(
    path: Path, output: IO[bytes], dump: AsyncIterator[bytes], manifest: Callable[[int, str], Manifest]
) -> Manifest:
    def put(data: bytes) -> None:
        rest = memoryview(data)
        with _writing(path):
            while rest:
                rest = rest[output.write(rest) :]

    # The size is known at the end; a header takes one block, however large the size.
    put(bytes(_BLOCK))
    digest, size = hashlib.sha256(), 0
    async for part in dump:
        put(part)
        digest.update(part)
        size += len(part)
    put(bytes(-size % _BLOCK))
    made = manifest(size, digest.hexdigest())
    body = made.model_dump_json(indent=2).encode()
    put(_header(_MANIFEST, len(body), made.taken_at) + body + bytes(-len(body) % _BLOCK) + bytes(2 * _BLOCK))
    output.seek(0)
    put(_header(_DUMP, size, made.taken_at))
    with _writing(path):
        os.fsync(output.fileno())
    return made


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Tell a failure to write from one to reach the database."""
    try:
        yield
    except OSError as error:
        raise NotWritten(
            f"{str(path)!r} cannot be written ({error.strerror or error}); nothing is left of it. Make room, or name a "
            "file elsewhere."
        ) from error


def _header(name: str, size: int, at: datetime) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, _PRIVATE, int(at.timestamp())
    return entry.tobuf(tarfile.GNU_FORMAT)


def _digest(file: IO[bytes], member: tarfile.TarInfo) -> str:
    digest, left = hashlib.sha256(), member.size
    file.seek(member.offset_data, io.SEEK_SET)
    while left and (part := file.read(min(_AT_ONCE_BYTES, left))):
        digest.update(part)
        left -= len(part)
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    """Put the name on disk as well."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "its manifest has another form"
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
