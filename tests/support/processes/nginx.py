"""The nginx of the distribution, with the configuration that the documents show."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes.fleet import free_port

_START_S = 30.0
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_MAIN = """
{user}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/log;
events {{}}
http {{
    access_log off;
    {temporary}
    {site}
}}
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A configuration that nginx is to serve.

    Attributes:
        blocks: Of `server` and `upstream`, as they stand in a file below `sites-enabled`.
        port: Where nginx listens with TLS.
    """

    blocks: str
    port: int


def why_no_nginx() -> str | None:
    """Return why nginx cannot be started; None if it can."""
    if _program() is None:
        return "nginx is not installed (apt-get install nginx)"
    return None if shutil.which("openssl") else "openssl, which makes the certificate, is not installed"


def _program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def adapted(blocks: str, upstreams: dict[str, str], folder: Path) -> Site:
    """Return a configuration with the addresses and the certificate of a test.

    Args:
        blocks: As they are documented.
        upstreams: The addresses that a test has for those of the document.
        folder: Where the certificate is made.

    Raises:
        AssertionError: The document does not have what is to be replaced.
    """
    certificate, key, port = folder / "fullchain.pem", folder / "privkey.pem", free_port()
    if not certificate.exists():
        _make_certificate(certificate, key)
    replaced = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/nova/fullchain.pem": str(certificate),
        "/etc/ssl/nova/privkey.pem": str(key),
        **upstreams,
    }
    for documented, own in replaced.items():
        assert documented in blocks, documented
        blocks = blocks.replace(documented, own)
    return Site(blocks, port)


def _make_certificate(certificate: Path, key: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=nova.example.org", "-addext", "subjectAltName=DNS:nova.example.org"]
    files = ["-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=60)


def trusting(folder: Path) -> ssl.SSLContext:
    """Return a context that trusts the certificate of this folder and no other."""
    return ssl.create_default_context(cafile=folder / "fullchain.pem")


@contextmanager
def own_nginx(site: Site, folder: Path) -> Generator[None]:
    """Check a configuration with ``nginx -t`` and serve it until the block ends.

    Args:
        site: What is served.
        folder: For its files; one for each nginx.

    Raises:
        AssertionError: It refuses or warns of the configuration, or does not start.
    """
    folder.mkdir()
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in _TEMPORARY)
    # As root its children would be another user, who may not enter a test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(_MAIN.format(folder=folder, temporary=temporary, site=site.blocks, user=user))
    program = _program()
    assert program is not None
    command = [program, "-e", str(folder / "log"), "-p", str(folder), "-c", str(file)]
    checked = subprocess.run([*command, "-t"], check=False, capture_output=True, text=True, timeout=_START_S)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr, checked.stderr
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline_s = time.monotonic() + _START_S
        # The check leaves an empty one; nginx listens before it writes its id.
        while not (folder / "pid").stat().st_size:
            assert process.poll() is None, (folder / "log").read_text("utf-8")
            assert time.monotonic() < deadline_s, "nginx does not start"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()
