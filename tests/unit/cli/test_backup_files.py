"""The files of agents in a backup, without a database."""

import asyncio
import errno
import io
import os
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

from nova_workers.base.errors import ConfigurationError, Conflict, InvalidInput
from nova_workers.cli.backups.container import Manifest, open_backup, write_backup
from nova_workers.cli.backups.files import FilesWritten, need_empty, read_files, write_files
from tests.requirements import proves


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directories of two agents, with what agents leave behind."""
    root = tmp_path / "agents"
    for name in ("ten_1/nova/sub", "ten_2/other"):
        (root / name).mkdir(parents=True)
    (root / "ten_1/nova/report.txt").write_text("of the first agent")
    (root / "ten_1/nova/report.txt").chmod(0o640)
    (root / "ten_1/nova/sub/empty").touch()
    (root / "ten_2/other/\udcff name").write_bytes(bytes(70_000))
    (root / "ten_2/other/python").symlink_to("/usr/bin/python3")
    (tmp_path / "secret").write_text("of the operator")
    (root / "ten_2/other/up").symlink_to(tmp_path)
    os.mkfifo(root / "ten_2/other/pipe")
    return root


def _content(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def _tar(root: Path) -> bytes:
    parts: list[bytes] = []
    write_files(root, parts.append)
    return b"".join(parts)


@proves("backup.files")
def test_files_come_back_with_their_links_and_modes_and_nothing_from_elsewhere(root: Path, tmp_path: Path) -> None:
    written = _tar(root)
    assert b"of the operator" not in written
    back = tmp_path / "back"
    assert read_files(io.BytesIO(written), back) == 5
    assert _content(back) == _content(root)
    assert (back / "ten_1/nova/report.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in back.iterdir()) == ["ten_1", "ten_2"]


@proves("backup.files")
def test_folders_that_take_no_files_come_back_as_they_were(root: Path, tmp_path: Path) -> None:
    folder = root / "ten_1/nova/sub"
    folder.chmod(0o500)
    os.utime(folder, (1_000_000_000, 1_000_000_000))
    read_files(io.BytesIO(_tar(root)), tmp_path / "back")
    found = (tmp_path / "back/ten_1/nova/sub").stat()
    assert (found.st_mode & 0o777, found.st_mtime) == (0o500, 1_000_000_000)


@proves("backup.files")
def test_a_root_that_is_a_link_to_another_disk_is_followed(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    assert _tar(link) == _tar(root)


@proves("backup.files")
def test_what_may_not_be_read_is_counted_and_a_failing_disk_ends_the_backup(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, faults = os.open, {"sub": PermissionError(errno.EACCES, "refused"), "report.txt": OSError(errno.ELOOP, "")}

    def failing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path in faults:
            raise faults[path]
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", failing)
    assert write_files(root, mock.Mock()) == FilesWritten(count=3, unreadable=1)
    faults["report.txt"] = OSError(errno.EIO, "the disk fails")
    with pytest.raises(ConfigurationError, match="the disk fails"):
        write_files(root, mock.Mock())


@proves("backup.files")
def test_a_tar_that_was_made_by_others_writes_nothing_outside(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("out/written"))
    with pytest.raises(InvalidInput):
        read_files(io.BytesIO(made.getvalue()), tmp_path / "back")
    assert not (tmp_path / "written").exists()
    assert list((tmp_path / "back").iterdir()) == []


@proves("backup.files")
def test_files_are_restored_into_an_empty_folder_only(root: Path, tmp_path: Path) -> None:
    need_empty(tmp_path / "none")
    with pytest.raises(Conflict, match="--files"):
        need_empty(root)


@proves("backup.files", "backup.whole")
def test_a_backup_has_the_files_beside_the_dump_and_damage_is_seen(root: Path, tmp_path: Path) -> None:
    async def dump() -> AsyncIterator[bytes]:
        yield b"PGDMP"

    def manifest(size: int, digest: str) -> Manifest:
        return Manifest(
            nova="1",
            schema_revision="1",
            taken_at=datetime.now(UTC),
            postgres=18,
            pg_dump=18,
            pgvector="0.8",
            roles=(),
            master_keys=(),
            rows={},
            dump_bytes=size,
            dump_sha256=digest,
        )

    path = tmp_path / "whole.backup"
    asyncio.run(write_backup(path, dump(), manifest, root))
    found = open_backup(path)
    assert (found.manifest.files, found.files_offset is not None) == (5, True)
    with path.open("rb") as file:
        file.seek(found.files_offset or 0)
        read_files(file, tmp_path / "back")
    assert _content(tmp_path / "back") == _content(root)
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["database.dump", "agents.tar", "manifest.json"]
    damaged = bytearray(path.read_bytes())
    damaged[(found.files_offset or 0) + 2_000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InvalidInput, match="the tar of agents"):
        open_backup(path)
