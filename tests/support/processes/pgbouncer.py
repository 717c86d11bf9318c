"""PgBouncer in transaction mode before the test's Postgres."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.processes.fleet import free_port

_START_S = 60.0
_CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 200
logfile = {folder}/log
"""


def why_no_pgbouncer() -> str | None:
    """Return why PgBouncer cannot be started; None if it can."""
    return None if _program() else "pgbouncer is not installed (apt-get install pgbouncer)"


def _program() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def own_pgbouncer(url: str, *, pool_size: int) -> Generator[str]:
    """Run a PgBouncer before a database until the block ends, and give the URL that leads through it.

    Args:
        url: Of the database, on the test's own Postgres, which trusts every user of its socket.
        pool_size: Most sessions with Postgres, of all clients together.
    """
    program, parts = _program(), urlsplit(url)
    assert program is not None
    host = parse_qs(parts.query)["host"][0]
    # It refuses to run as root, and the folder of the socket is of the user of Postgres alone.
    owner = Path(host).stat().st_uid
    folder, listen = Path(tempfile.mkdtemp(prefix="nova-pgbouncer-")), free_port()
    try:
        file = folder / "pgbouncer.ini"
        values = {"host": host, "port": parts.port or 5432, "user": parts.username, "listen": listen}
        file.write_text(_CONFIGURATION.format(folder=folder, pool_size=pool_size, **values))
        if os.getuid() == 0:
            os.chown(folder, owner, -1)
        with _running([program, "--quiet", str(file)], owner if os.getuid() == 0 else None, folder / "log", listen):
            yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{listen}", query="").geturl()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], user: int | None, log: Path, port: int) -> Generator[None]:
    process = subprocess.Popen(command, user=user, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline_s = time.monotonic() + _START_S
        while not _listens(port):
            assert process.poll() is None, log.read_text() if log.exists() else "pgbouncer ended at once"
            assert time.monotonic() < deadline_s, "pgbouncer does not listen"
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
