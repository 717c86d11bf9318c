"""What is proven of the containers, one function each; each returns what it saw."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Final

import httpx2

from deploy.environment.containers.bases import ROOT, build, run
from deploy.environment.containers.fleet import EMBEDDINGS_IMAGE, IMAGE, Fleet, Load
from tests.support.data.previous_release import COMMIT, VERSION

_SLIM: Final = re.compile(r"python:3[\w.-]*")
_MOST_MB: Final = 300
"""Of our layers, over the base."""
_LONGEST_GAP_S: Final = 60.0
_RESTARTED: Final = ("worker", "api", "beat", "flower", "console", "valkey", "postgres")
_WORKERS_S: Final = 60.0

Proof = Callable[[Fleet], str]


class Refuted(Exception):
    """Something does not hold; the message says what."""


def prove(fleet: Fleet, *, upgrade: bool) -> int:
    """Run all proofs, and print a line for each. Returns 1 if one fails, else 0."""
    proofs: list[tuple[str, Proof]] = [
        ("images", _images),
        ("start", _start),
        ("a message", _message),
        ("scale workers 1, 3, 1", _scale),
        *((f"restart {name}", _restart(name)) for name in _RESTARTED),
        ("backup and restore", _backup),
    ]
    if upgrade:
        proofs.append((f"upgrade from {VERSION}", _upgrade))
    failed = False
    for name, proof in proofs:
        began_s = time.monotonic()
        try:
            mark, seen = "✓", proof(fleet)
        except (Refuted, RuntimeError, httpx2.HTTPError) as error:
            mark, seen, failed = "✗", str(error), True
        print(f"{mark} {name:24} {time.monotonic() - began_s:6.1f} s  {seen}", flush=True)
        if failed:
            break
    return int(failed)


def _images(fleet: Fleet) -> str:
    fleet.build()
    base = _bytes_of(fleet.bases.python)
    ours, with_model = ((_bytes_of(image) - base) / 1e6 for image in (IMAGE, EMBEDDINGS_IMAGE))
    if ours > _MOST_MB:
        raise Refuted(f"the layers of the fleet's image have {ours:.0f} MB, more than {_MOST_MB}")
    return f"{ours:.0f} MB over the base (at most {_MOST_MB}), {with_model:.0f} MB with the embedding model"


def _bytes_of(image: str) -> int:
    return int(run("docker", "image", "inspect", "--format", "{{.Size}}", image))


def _start(fleet: Fleet) -> str:
    took_s = fleet.up()
    fleet.make_key()
    return f"ready after {took_s:.1f} s; the first key was shown on a terminal"


def _message(fleet: Fleet) -> str:
    answer = fleet.ask("Hello")
    if answer["status"] != "succeeded":
        raise Refuted(f"the run ended as {answer['status']}")
    return str(answer.get("output") or answer.get("text") or answer["status"])[:60]


def _scale(fleet: Fleet) -> str:
    seen: list[int] = []
    with fleet.under_load() as load:
        for number in (3, 1):
            fleet.up(worker=number)
            _wait_for_workers(fleet, number)
            seen.append(number)
            time.sleep(3)
    return _judged(load)


def _wait_for_workers(fleet: Fleet, number: int) -> None:
    deadline_s = time.monotonic() + _WORKERS_S
    while (live := fleet.live_workers()) != number:
        if time.monotonic() > deadline_s:
            raise Refuted(f"{live} workers live, and not {number}")
        time.sleep(0.5)


def _restart(name: str) -> Proof:
    def prove_restart(fleet: Fleet) -> str:
        with fleet.under_load() as load:
            time.sleep(2)
            fleet.compose("restart", name)
            time.sleep(5)
            fleet.up()
        return _judged(load)

    return prove_restart


def _judged(load: Load) -> str:
    succeeded = load.statuses.get("succeeded", 0)
    if succeeded != len(load.accepted) or not load.accepted:
        raise Refuted(f"of {len(load.accepted)} accepted runs: {load.statuses}")
    if load.longest_gap_s > _LONGEST_GAP_S:
        raise Refuted(f"no message was accepted for {load.longest_gap_s:.0f} s")
    return (
        f"{succeeded} of {succeeded} accepted runs succeeded; {load.refused} were refused, none accepted for "
        f"{load.longest_gap_s:.1f} s"
    )


def _backup(fleet: Fleet) -> str:
    database = ("exec", "-T", "postgres")
    user = ("-U", "nova")
    count = (*database, "psql", *user, "-At", "-c", "SELECT count(*) FROM runs", "-d")
    backup = fleet.compose(*database, "pg_dump", *user, "--format=custom", "nova")
    fleet.compose(*database, "createdb", *user, "restored")
    fleet.compose(*database, "pg_restore", *user, "--exit-on-error", "-d", "restored", stdin=backup)
    before, after = (int(fleet.compose(*count, name)) for name in ("nova", "restored"))
    if before != after or not before:
        raise Refuted(f"{before} runs, and {after} in what was restored")
    return f"{before} runs in a file of {len(backup) / 1e6:.1f} MB, and all of them in the restored database"


def _upgrade(fleet: Fleet) -> str:
    with tempfile.TemporaryDirectory(prefix="nova-release-") as folder:
        tree = Path(folder)
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", COMMIT], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as tar:
            tar.extractall(tree, filter="data")
        old = f"nova-workers:{VERSION}"
        dockerfile = tree / "deploy" / "Dockerfile"
        # It names its base image, which may not be had here.
        dockerfile.write_text(_SLIM.sub(fleet.bases.python, dockerfile.read_text("utf-8")), "utf-8")
        build(old, dockerfile, tree)
        fleet.begin_with(tree, old)
        thread = fleet.ask("Hello")["thread_id"]
        with fleet.under_load() as load:
            time.sleep(2)
            fleet.change_to_this()
            time.sleep(5)
        seen = _judged(load)
        turns = fleet.request("GET", f"/v1/threads/{thread}/messages")
        if not turns["items"]:
            raise Refuted(f"the conversation {thread} of {VERSION} is empty")
    return seen
