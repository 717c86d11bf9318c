"""Finds `pg_dump` and `pg_restore` of a version that fits a server, and runs them."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from nova_workers.base.errors import ConfigurationError, NovaError
from nova_workers.devstack.environments import system_environment
from nova_workers.devstack.servers.binaries import postgres_programs

_ANY_OLDER = 17
"""From this version of the server on, programs of later versions fit too: those of 17 and later write settings into
a restore that earlier servers refuse."""
_PACKAGED = Path("/usr/lib/postgresql")
_NUMBER = re.compile(r"\(PostgreSQL\) (\d+)")
_LAST_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with `pg_dump` and `pg_restore`, and their major version."""

    folder: Path
    major: int


def find_programs(server: int) -> Programs:
    """Return the programs that fit a server: of its own major version if there are any.

    Args:
        server: Major version of the server.

    Raises:
        ConfigurationError: There are none.
    """
    found = [Programs(folder, major) for folder in _folders() if (major := _major(folder)) is not None]
    fitting = [each for each in found if each.major == server or each.major > server >= _ANY_OLDER]
    if not fitting:
        seen = ", ".join(f"{each.major} in {str(each.folder)!r}" for each in found) or "none"
        raise ConfigurationError(
            f"The server is Postgres {server}, and no pg_dump and pg_restore for it were found (found: {seen}). Put "
            f"those of version {server} on PATH, such as those of the package postgresql-client-{server}."
        )
    return min(fitting, key=lambda each: each.major)


async def start(
    programs: Programs, name: str, arguments: Sequence[str], *, url: str, stdin: int, stdout: int
) -> asyncio.subprocess.Process:
    """Start a program on a database. Its password is in the environment, where other users do not see it."""
    return await asyncio.create_subprocess_exec(
        str(programs.folder / name),
        *arguments,
        env={**_environment(), **_password(url)},
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )


def without_password(url: str) -> str:
    """Return the URL of a database without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(unquote(parts.username or ''), safe='')}@{host}").geturl()


def last_lines(output: bytes) -> str:
    """Return the end of a program's output on one line."""
    return " ".join(output.decode(errors="replace")[-_LAST_CHARS:].split())


class ProgramFailed(NovaError):
    """`pg_dump` or `pg_restore` failed; the message has its own words."""

    code = "program_failed"


def _folders() -> list[Path]:
    folders = [Path(found).resolve().parent for name in ("pg_dump",) if (found := shutil.which(name))]
    folders += sorted(_PACKAGED.glob("*/bin"))
    try:
        folders.append(postgres_programs())
    except ConfigurationError:
        pass  # the extra `local` is not installed
    return folders


def _major(folder: Path) -> int | None:
    if not (folder / "pg_restore").exists():
        return None
    try:
        done = subprocess.run([folder / "pg_dump", "--version"], capture_output=True, text=True, check=True)  # noqa: S603 - the programs of Postgres
    except (OSError, subprocess.CalledProcessError):
        return None
    number = _NUMBER.search(done.stdout)
    return int(number[1]) if number else None


def _environment() -> dict[str, str]:
    """Return the system's variables, and those that the client library of Postgres reads."""
    return system_environment(os.environ) | {name: value for name, value in os.environ.items() if name.startswith("PG")}


def _password(url: str) -> Mapping[str, str]:
    password = urlsplit(url).password
    return {} if password is None else {"PGPASSWORD": unquote(password)}
