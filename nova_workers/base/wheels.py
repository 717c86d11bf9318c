"""Wheels of projects: written byte for byte alike from the same files, and read with all that they contain checked.

A wheel has the project's files below ``nova_projects/NAME/``, and its lock beside its metadata. No installer is needed
to read it, and nothing of it is executed by that.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from nova_workers.base.errors import InvalidInput
from nova_workers.base.project_files import LOCK, name_in

MAX_WHEEL_BYTES: Final = 64 << 20
"""The limit of a wheel, and of all its files together."""

_ROOT: Final = "nova_projects"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP file can have. The time of a build would make each one another file."""
_MODE: Final = 0o100644 << 16
_RECORDED: Final = "RECORD"
_VERSION: Final = re.compile(
    r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)
"""The canonical form of a version of Python packages."""


@dataclass(frozen=True, slots=True)
class ProjectWheel:
    """The content of a wheel.

    Attributes:
        name: Of the project.
        version: Of the project, as its author counts.
        files: By their path in the project's folder.
    """

    name: str
    version: str
    files: Mapping[str, bytes]

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{_escaped(self.name)}-{self.version}-py3-none-any.whl"

    def to_bytes(self) -> bytes:
        """Return the file. The same project is the same file.

        Raises:
            InvalidInput: The version is in another form than Python's packages have.
        """
        if not _VERSION.fullmatch(self.version):
            raise InvalidInput(
                f"version is {self.version!r}; expected one such as '0.1.0', '1.2.0rc1' or '1.2.0.post1'."
            )
        info = f"{_escaped(self.name)}-{self.version}.dist-info"
        members = {f"{_ROOT}/{self.name}/{path}": content for path, content in sorted(self.files.items())}
        members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n".encode()
        members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: nova\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        members[f"{info}/{_RECORDED}"] = _record(members, info)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, content in members.items():
                member = zipfile.ZipInfo(path, _EPOCH)
                member.external_attr, member.create_system = _MODE, 3
                # Compressed data depends on the version of zlib.
                archive.writestr(member, content, zipfile.ZIP_STORED)
        return buffer.getvalue()


def read_wheel(path: Path) -> ProjectWheel:
    """Read a wheel, and compare each file with its record.

    Raises:
        InvalidInput: It cannot be read, is not the wheel of a project, or is damaged.
    """
    name = name_in(path.name)
    if name is None:
        raise InvalidInput(f"{path}: expected the name of a project's wheel, such as 'shop-0.1.0-py3-none-any.whl'.")
    version = path.name.split("-")[1]
    prefix, info = f"{_ROOT}/{name}/", f"{_escaped(name)}-{version}.dist-info/"
    try:
        if path.stat().st_size > MAX_WHEEL_BYTES:
            raise InvalidInput(f"{path}: it has more than {MAX_WHEEL_BYTES >> 20} MB.")
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_WHEEL_BYTES:
                raise InvalidInput(f"{path}: its files have more than {MAX_WHEEL_BYTES >> 20} MB.")
            members = {member.filename: archive.read(member) for member in archive.infolist()}
    except OSError as error:
        raise InvalidInput(f"{path}: it cannot be read ({error.strerror or error}).") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"{path}: it is no wheel, or damaged: {error}.") from error
    if f"{info}{_RECORDED}" not in members or members[f"{info}{_RECORDED}"] != _record(members, info.rstrip("/")):
        raise InvalidInput(f"{path}: it is not as `nova build` wrote it: its files differ from its record.")
    files = {member[len(prefix) :]: content for member, content in members.items() if member.startswith(prefix)}
    if not files or not all(member.startswith((prefix, info)) for member in members):
        raise InvalidInput(f"{path}: it is not the wheel of a project; `nova build` makes one.")
    for file in files:
        parts = PurePosixPath(file).parts
        if str(PurePosixPath(*parts)) != file or ".." in parts or "\\" in file or file.startswith("/"):
            raise InvalidInput(f"{path}: it has a file {file!r}, which is in no folder of a project.")
    return ProjectWheel(name, version, files)


def locked_requirements(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each requirement of a lock: its normalized name, its version, and its line with all hashes.

    Raises:
        InvalidInput: A line is something else than a pinned requirement with hashes; names the line.
    """
    number = 0
    lines = iter(text.splitlines())
    for line in lines:
        number += 1
        first, whole = number, line
        while whole.rstrip().endswith("\\"):
            number += 1
            whole = whole.rstrip()[:-1] + next(lines, "")
        content = re.sub(r"(^|\s)#.*", "", whole).strip()
        if not content:
            continue
        found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)", content)
        if found is None or "--hash=" not in content:
            raise InvalidInput(
                f"{LOCK}:{first}: expected NAME==VERSION with hashes, as `uv pip compile --generate-hashes "
                f"pyproject.toml -o {LOCK}` writes it."
            )
        yield normalized(found[1]), found[2], content


def normalized(name: str) -> str:
    """Return the name of a package as all spellings of it have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _escaped(name: str) -> str:
    return name.replace("-", "_")


def _record(members: Mapping[str, bytes], info: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    own = f"{info}/{_RECORDED}"
    for path in sorted(set(members) - {own}):
        digest = base64.urlsafe_b64encode(hashlib.sha256(members[path]).digest()).rstrip(b"=").decode()
        writer.writerow((path, f"sha256={digest}", len(members[path])))
    writer.writerow((own, "", ""))
    return text.getvalue().encode()
