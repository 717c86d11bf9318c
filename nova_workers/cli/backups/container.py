"""The file of a backup: a tar with what `pg_dump` wrote, in its own format, the files of agents, and a manifest behind.

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

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.cli.backups.files import write_files

FORMAT: Final = 1

_DUMP = "database.dump"
_FILES = "agents.tar"
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
        files: Number of the files of agents; None if they are not in it.
        files_unreadable: Number of those that the user of the backup could not read, and that are not in it.
        files_bytes: Size of the tar with them.
        files_sha256: Its digest.
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
    files: int | None = None
    files_unreadable: int = 0
    files_bytes: int = 0
    files_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete file: its manifest, and where in it the dump and the files of agents begin."""

    path: Path
    manifest: Manifest
    offset: int
    files_offset: int | None = None


async def write_backup(
    path: Path, dump: AsyncIterator[bytes], manifest: Callable[[int, str], Manifest], files: Path | None = None
) -> Manifest:
    """Write a backup that only this user may read. It has its name only once it is complete and on disk.

    Args:
        path: Its name.
        dump: What `pg_dump` writes.
        manifest: Called at the end, with the size and the digest of the dump.
        files: The folder of agents' directories; None leaves them out.

    Raises:
        NotWritten: The file cannot be written. Nothing is left.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _writing(path):
            output = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb", buffering=0)
        try:
            made = await _write(path, output, dump, manifest, files)
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
                files = members.get(_FILES)
                manifest = Manifest.model_validate_json(b"" if body is None else body.read())
        except (tarfile.TarError, KeyError, ValidationError, EOFError) as error:
            raise InvalidInput(
                f"{str(path)!r} is no file of `nova backup`, or only a part of one ({_words(error)}). Take another.",
                field="file",
            ) from error
        parts: list[tuple[tarfile.TarInfo | None, int, str]] = [(dump, manifest.dump_bytes, manifest.dump_sha256)]
        if manifest.files is not None:
            parts.append((files, manifest.files_bytes, manifest.files_sha256))
        for part, size, digest in parts:
            if part is None or part.size != size or _digest(file, part) != digest:
                raise InvalidInput(
                    f"{str(path)!r} is damaged: {'its dump' if part is dump else 'the tar of agents'} is not the one "
                    "that was written, by size or digest. Take another file.",
                    field="file",
                )
    return Backup(path, manifest, dump.offset_data, None if files is None else files.offset_data)


async def _write(
    path: Path,
    output: IO[bytes],
    dump: AsyncIterator[bytes],
    manifest: Callable[[int, str], Manifest],
    files: Path | None,
) -> Manifest:
    database = _Member(path, output)
    async for part in dump:
        database.put(part)
    database.end()
    made = manifest(database.size, database.digest.hexdigest())
    members = [(database, _DUMP)]
    if files is not None:
        tar = _Member(path, output)
        written = write_files(files, tar.put)
        tar.end()
        found = {"files": written.count, "files_unreadable": written.unreadable}
        found |= {"files_bytes": tar.size, "files_sha256": tar.digest.hexdigest()}
        made = made.model_copy(update=found)
        members.append((tar, _FILES))
    end = _Member(path, output)
    end.put(made.model_dump_json(indent=2).encode())
    end.end(bytes(2 * _BLOCK))
    for member, name in (*members, (end, _MANIFEST)):
        member.write_header(name, made.taken_at)
    with _writing(path):
        os.fsync(output.fileno())
    return made


class _Member:
    """A member of the tar while it is written: its size is known at its end, and its header is written then.

    A header takes one block, however large the size.
    """

    def __init__(self, path: Path, output: IO[bytes]) -> None:
        self._path = path
        self._output = output
        self._start = output.tell()
        self.size = 0
        self.digest = hashlib.sha256()
        self._write(bytes(_BLOCK))

    def put(self, data: bytes) -> None:
        """Write a part of its content."""
        self._write(data)
        self.digest.update(data)
        self.size += len(data)

    def end(self, more: bytes = b"") -> None:
        """Fill its last block."""
        self._write(bytes(-self.size % _BLOCK) + more)

    def write_header(self, name: str, at: datetime) -> None:
        """Write the header into the block that was left for it."""
        self._output.seek(self._start)
        self._write(_header(name, self.size, at))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        with _writing(self._path):
            while rest:
                rest = rest[self._output.write(rest) :]


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
