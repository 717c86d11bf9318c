"""`@copilotkit/aimock`, a model server that others wrote, as a child process on loopback. `make aimock` installs it."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).parent / "aimock" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
_START_DEADLINE_S = 30.0


def why_no_aimock() -> str | None:
    """Return why the server cannot run here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not _PROGRAM.is_file():
        return "aimock is not installed; `make aimock` does it, where npm is"
    return None


@contextmanager
def aimock_server(directory: Path, fixtures: list[dict[str, Any]]) -> Generator[str]:
    """Run the server with `fixtures` for the block, and give its URL."""
    given = directory / "fixtures.json"
    given.write_text(json.dumps({"fixtures": fixtures}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # It sends fragments of this many characters.
    command = ["node", str(_PROGRAM), "--port", str(port), "--chunk-size", "4", "--strict", "--validate-on-load"]
    with (directory / "aimock.log").open("wb") as log:
        process = subprocess.Popen([*command, "--fixtures", str(given)], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(url, process, directory / "aimock.log")
            yield url
        finally:
            process.terminate()
            process.wait(10)


def _wait_until_up(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + _START_DEADLINE_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"aimock ended with {process.returncode}: {log.read_text()}")
        try:
            urllib.request.urlopen(f"{url}/ready", timeout=1).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"aimock did not answer within {_START_DEADLINE_S} s")
