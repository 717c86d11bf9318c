"""The Caddy of the distribution, with the configuration that the documents show."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.support.processes.fleet import free_port

_START_S = 30.0
# Certificates are Caddy's own, and not those of an authority in the internet; it listens on loopback.
_OPTIONS = """
{{
	admin off
	local_certs
	skip_install_trust
	auto_https disable_redirects
	default_bind 127.0.0.1
	http_port {http_port}
	https_port {https_port}
	storage file_system {folder}/storage
}}
"""


@dataclass(frozen=True, slots=True)
class Caddy:
    """A Caddy that serves.

    Attributes:
        port: Where it listens with TLS.
        trust: Trusts its certificates and no others.
    """

    port: int
    trust: ssl.SSLContext


def why_no_caddy() -> str | None:
    """Return why Caddy cannot be started; None if it can."""
    return None if shutil.which("caddy") else "Caddy is not installed (apt-get install caddy)"


@contextmanager
def own_caddy(sites: str, upstreams: dict[str, str], host: str, folder: Path) -> Generator[Caddy]:
    """Check a configuration with ``caddy validate``, and serve it until the block ends.

    Args:
        sites: As they are documented.
        upstreams: The addresses that a test has for those of the document.
        host: One of the sites' names, for which a certificate is awaited.
        folder: For its files; one for each Caddy.

    Raises:
        AssertionError: The document does not have what is to be replaced, or Caddy refuses it or does not start.
    """
    folder.mkdir()
    for documented, own in upstreams.items():
        assert documented in sites, documented
        sites = sites.replace(documented, own)
    https_port = free_port()
    options = _OPTIONS.format(folder=folder, http_port=free_port(), https_port=https_port)
    file, log = folder / "Caddyfile", folder / "log"
    file.write_text(options + sites)
    command = ["--config", str(file), "--adapter", "caddyfile"]
    env = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    checked = subprocess.run(
        ["caddy", "validate", *command], check=False, capture_output=True, text=True, timeout=_START_S, env=_with(env)
    )
    assert checked.returncode == 0, checked.stderr
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["caddy", "run", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_with(env),
        )
    root = folder / "storage" / "pki" / "authorities" / "local" / "root.crt"
    try:
        deadline_s = time.monotonic() + _START_S
        while not (root.exists() and _answers(https_port, host, root)):
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline_s, "Caddy does not start"
            time.sleep(0.02)
        yield Caddy(https_port, ssl.create_default_context(cafile=root))
    finally:
        process.kill()
        process.wait()


def _with(own: dict[str, str]) -> dict[str, str]:
    program = shutil.which("caddy")
    assert program is not None
    return {"PATH": str(Path(program).parent), **own}


def _answers(port: int, host: str, root: Path) -> bool:
    # What Caddy answers itself: the API may be served by the loop that waits here.
    try:
        with httpx2.Client(verify=ssl.create_default_context(cafile=root)) as client:
            client.get(f"https://127.0.0.1:{port}/metrics", headers={"Host": host}, extensions={"sni_hostname": host})
    except httpx2.TransportError:
        return False
    return True
