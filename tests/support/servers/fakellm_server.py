"""`fakellm`, a model server that we did not write, as a child process on loopback."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_DEADLINE_S = 30.0


@contextmanager
def fakellm_server(directory: Path, rules: list[dict[str, Any]]) -> Generator[str]:
    """Run the server with `rules` for the block, and give its URL. It keeps its state by first user message."""
    config = directory / "fakellm.yaml"
    # JSON is YAML.
    config.write_text(json.dumps({"version": 1, "rules": rules}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (directory / "fakellm.log").open("wb")
    command = [sys.executable, "-c", "from fakellm.cli import main; main()", "serve", "--port", str(port)]
    process = subprocess.Popen([*command, "--config", str(config)], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def _wait_until_up(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + _START_DEADLINE_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"fakellm ended with {process.returncode}")
        try:
            urllib.request.urlopen(f"{url}/_fakellm/stats", timeout=1).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"fakellm did not answer within {_START_DEADLINE_S} s")
