"""The fleet of `deploy/compose.yaml` in a project of its own, and a client of its API."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import httpx2

from deploy.environment.containers.bases import ROOT, Bases, build

PROJECT: Final = "nova-containers"
IMAGE: Final = "nova-workers:containers"
EMBEDDINGS_IMAGE: Final = "nova-workers:containers-embeddings"
_UP_S: Final = 180
_ENDED_S: Final = 180
_PAUSE_S: Final = 0.2
_FIXED_PORT: Final = re.compile(r'"127\.0\.0\.1:(\d+):')
_KEY: Final = re.compile(r"\bnova_[\w-]{20,}")
# Answers that need no provider of models, which are refused in production.
_SCRIPTED: Final = {"NOVA_DEFAULT_ENGINE": "scripted", "NOVA_ENVIRONMENT": "development"}
_OVERRIDE: Final = {"services": {name: {"environment": _SCRIPTED} for name in ("migrate", "api", "worker")}}


class Fleet:
    """A compose file's services, with passwords and ports of their own."""

    def __init__(self, bases: Bases, tree: Path = ROOT) -> None:
        self.bases = bases
        self.tree = tree
        self._folder = tempfile.TemporaryDirectory(prefix="nova-containers-")
        self._override = Path(self._folder.name, "override.yaml")
        self._override.write_text(json.dumps({"version": "3.8", **_OVERRIDE}))
        self._port = _free_port()
        self._environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "FLEET_IMAGE": IMAGE,
            "EMBEDDINGS_IMAGE": EMBEDDINGS_IMAGE,
            "POSTGRES_IMAGE": bases.postgres,
            "VALKEY_IMAGE": bases.valkey,
            "API_PORT": str(self._port),
            "CONSOLE_PORT": str(_free_port()),
            "FLOWER_PORT": str(_free_port()),
            **{name: secrets.token_hex(24) for name in _PASSWORDS},
        }
        self._key = ""

    def build(self) -> None:
        """Build both images."""
        base = [f"PYTHON_IMAGE={self.bases.python}"]
        dockerfile = ROOT / "deploy" / "Dockerfile"
        build(IMAGE, dockerfile, ROOT, target="fleet", arguments=base)
        build(EMBEDDINGS_IMAGE, dockerfile, ROOT, target="embeddings", arguments=base)

    def begin_with(self, tree: Path, image: str) -> None:
        """Start from empty volumes with the compose file and the image of an earlier release, and make its key."""
        self.compose("down", "--volumes", "--timeout", "5")
        file = tree / "deploy" / "compose.yaml"
        # It names its project, which docker-compose 1 refuses, and images and ports that may not be had here.
        text = re.sub(r"^name: .*\n", "", file.read_text("utf-8"), flags=re.MULTILINE)
        text = re.sub(r"image: pgvector/\S+", f"image: {self.bases.postgres}", text)
        text = re.sub(r"image: valkey/\S+", f"image: {self.bases.valkey}", text)
        text = text.replace("image: nova-workers\n", f"image: {image}\n")
        ports = {"8700": self._port}
        file.write_text(
            _FIXED_PORT.sub(lambda found: f'"127.0.0.1:{ports.get(found[1]) or _free_port()}:', text), "utf-8"
        )
        self.tree = tree
        self.up()
        # That of 0.2.0 wrote the first key into its log.
        (self._key,) = set(_KEY.findall(self.compose("logs", "migrate").decode()))

    def change_to_this(self) -> None:
        """Start this release on the same volumes."""
        self.tree = ROOT
        self.up()

    def compose(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run a command of compose.

        Raises:
            RuntimeError: It failed; with its last lines.
        """
        command = self._command(*arguments)
        done = subprocess.run(command, env=self._environment, input=stdin, capture_output=True, check=False)
        if done.returncode != 0:
            last = "\n".join((done.stdout + done.stderr).decode(errors="replace").splitlines()[-30:])
            raise RuntimeError(f"compose {' '.join(arguments)} ended with {done.returncode}:\n{last}")
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        files = ["-f", str(self.tree / "deploy" / "compose.yaml"), "-f", str(self._override)]
        return [*_compose(), *files, *arguments]

    def up(self, **scale: int) -> float:
        """Start everything, and return the seconds until the API is ready and workers live."""
        began_s = time.monotonic()
        scales = [part for name, number in scale.items() for part in ("--scale", f"{name}={number}")]
        self.compose("up", "--detach", "--no-build", *scales)
        _until(self.is_ready, "the API", _UP_S)
        return time.monotonic() - began_s

    def is_ready(self) -> bool:
        """Return whether the API is ready."""
        try:
            return httpx2.get(f"{self._url}/readyz", timeout=5).is_success
        except httpx2.HTTPError:
            return False

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def make_key(self) -> None:
        """Make the first key, as its page says: on a terminal, which is the only place that shows it."""
        ours, theirs = os.openpty()
        command = self._command("run", "--rm", "migrate", "migrate", "--first-key")
        process = subprocess.Popen(command, env=self._environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        # The end of the other side is an error of input and output.
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
        process.wait()
        (self._key,) = set(_KEY.findall(shown.decode()))

    def request(self, method: str, path: str, body: object = None, *, timeout_s: float = 60) -> Any:
        """Return the JSON of an answer.

        Raises:
            httpx2.HTTPError: There was none, or an error.
        """
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = httpx2.request(method, self._url + path, json=body, headers=headers, timeout=timeout_s)
        return answer.raise_for_status().json()

    def ask(self, text: str) -> Mapping[str, Any]:
        """Send a message and return the run that answered it."""
        return self.request("POST", "/v1/runs/wait", {"message": text})

    @contextmanager
    def under_load(self) -> Generator[Load]:
        """Send messages until the block ends, and then wait until all that were accepted have ended."""
        load = Load(self)
        thread = Thread(target=load.send, daemon=True)
        thread.start()
        try:
            yield load
        finally:
            load.stop.set()
            thread.join()
        load.wait_until_ended()

    def live_workers(self) -> int:
        """Return the number of workers that report themselves."""
        return len(self.request("GET", "/v1/fleet")["workers"] or [])

    def remove(self) -> None:
        """Stop and remove everything, with its data."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")
        self._folder.cleanup()


class Load:
    """Messages that are sent one after the other, and what became of their runs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.stop = Event()
        self.accepted: list[str] = []
        self.refused = 0
        self.longest_gap_s = 0.0
        """The longest time without an accepted message."""
        self.statuses: dict[str, int] = {}

    def send(self) -> None:
        """Send until it is stopped."""
        last_s = time.monotonic()
        message = json.dumps({"script": [{"sleep_s": 0.5}, {"say": "Done."}]})
        while not self.stop.is_set():
            try:
                run = self._fleet.request("POST", "/v1/runs", {"message": message}, timeout_s=10)
                self.accepted.append(run["id"])
                now_s = time.monotonic()
                self.longest_gap_s, last_s = max(self.longest_gap_s, now_s - last_s), now_s
            except httpx2.HTTPError:
                self.refused += 1
            time.sleep(_PAUSE_S)

    def wait_until_ended(self) -> None:
        """Wait until every accepted run has ended, and count how."""
        deadline_s = time.monotonic() + _ENDED_S
        left = list(self.accepted)
        while left and time.monotonic() < deadline_s:
            run = self._read(left[-1])
            if run is not None and run["status"] in {"succeeded", "failed", "canceled"}:
                self.statuses[run["status"]] = self.statuses.get(run["status"], 0) + 1
                left.pop()
            else:
                time.sleep(_PAUSE_S)
        if left:
            self.statuses["not ended"] = len(left)

    def _read(self, run_id: str) -> Any:
        try:
            return self._fleet.request("GET", f"/v1/runs/{run_id}", timeout_s=10)
        except httpx2.HTTPError:
            return None


_PASSWORDS: Final = (
    "POSTGRES_PASSWORD",
    "DATABASE_PASSWORD",
    "VALKEY_PASSWORD",
    "NOVA_CONSOLE__SECRET",
    "NOVA_FLOWER__PASSWORD",
)


def _compose() -> list[str]:
    has_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    return ["docker", "compose"] if has_plugin else ["docker-compose"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _until(happened: Callable[[], bool], what: str, within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"waited {within_s:g} s for {what}")
        time.sleep(_PAUSE_S)
