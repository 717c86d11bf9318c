"""The supervisor, with small stand-ins for the fleet's processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.supervisor import ProcessGaveUp, RestartPolicy, Supervisor
from tests.support.processes.inspection import descendants, is_alive
from tests.support.waiting import until

QUICK = RestartPolicy(first_delay_s=0.01, longest_delay_s=0.05, healthy_after_s=60.0, give_up_after=3)

SLEEPS = "import time; time.sleep(300)"
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"
)
LEAVES_A_CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])"


class RecordingSink:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}
        self.said: list[str] = []

    def lines(self, name: str, texts: Sequence[str]) -> None:
        self.of.setdefault(name, []).extend(texts)

    def say(self, text: str, *, alarm: bool = False) -> None:
        self.said.append(text)


def program(name: str, code: str, **options: object) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", code), **options)  # type: ignore[arg-type]  # a test's shorthand


async def test_it_starts_in_order_and_stops_in_reverse_order(tmp_path: Path) -> None:
    log = tmp_path / "order"
    code = """
import signal, sys, time
log = open({log!r}, "a", buffering=1)
def stop(*_):
    log.write("-{name}\\n")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
log.write("+{name}\\n")
time.sleep(300)
"""

    def spec(name: str) -> ProcessSpec:
        async def ready() -> bool:
            return f"+{name}" in log.read_text() if log.exists() else False

        return program(name, code.format(log=str(log), name=name), ready=ready)

    supervisor = Supervisor(RecordingSink(), QUICK)
    supervisor.begin([spec("one")])
    assert supervisor.pids == {}
    await supervisor.start([spec("two")])
    await supervisor.all_serve()
    await supervisor.start([spec("three")])
    await supervisor.stop()
    words = log.read_text().split()
    assert sorted(words[:2]) == ["+one", "+two"]
    assert words[2:] == ["+three", "-three", "-two", "-one"]
    assert supervisor.pids == {}


async def test_a_process_that_dies_is_restarted() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, QUICK)
    await supervisor.start([program("app", SLEEPS)])
    first = supervisor.pids["app"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pids.get("app", first) != first, "a new process")
    assert lines.said == ["app ended with signal 9; starting it again in 0.01 s"]
    await supervisor.stop()
    assert not is_alive(first)


async def test_it_stops_restarting_a_process_that_fails_repeatedly() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, QUICK)

    async def never() -> bool:
        return False

    with pytest.raises(ProcessGaveUp, match=r"app ended with exit code 7 before it was ready, 3 times in a row"):
        await supervisor.start([program("app", "print('no such file'); raise SystemExit(7)", ready=never)])
    assert lines.of["app"] == ["no such file"] * 3
    await supervisor.stop()


async def test_an_optional_process_that_fails_repeatedly_ends_no_other() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, QUICK)

    async def never() -> bool:
        return False

    fails = program("extra", "print('no such token'); raise SystemExit(7)", ready=never, optional=True)
    await supervisor.start([program("app", SLEEPS)], [fails])
    await until(lambda: len(lines.of.get("extra", [])) > QUICK.give_up_after + 1, "more starts than of another process")
    assert supervisor.pids.keys() >= {"app"}
    assert lines.said[-1] == "extra ended with exit code 7 before it was ready; starting it again in 0.05 s"
    await supervisor.stop()


async def test_a_process_that_is_never_ready_is_stopped_and_tried_again() -> None:
    lines = RecordingSink()

    async def never() -> bool:
        return False

    supervisor = Supervisor(lines, QUICK)
    with pytest.raises(ProcessGaveUp, match=r"was not ready after 0\.2 s"):
        await supervisor.start([program("app", SLEEPS, ready=never, ready_timeout_s=0.2)])
    await supervisor.stop()


async def test_a_process_that_ignores_sigterm_is_killed_after_its_bound() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, QUICK)

    async def ready() -> bool:
        return "deaf" in lines.of.get("app", [])

    await supervisor.start([program("app", IGNORES_SIGTERM, ready=ready, stop_timeout_s=0.3)])
    pid = supervisor.pids["app"]
    began_s = time.monotonic()
    await supervisor.stop()
    assert 0.3 <= time.monotonic() - began_s < 60
    assert not is_alive(pid)
    assert lines.said == ["app did not stop within 0.3 s; killing it"]


async def test_the_rest_of_a_dead_processs_group_is_killed_before_the_restart() -> None:
    supervisor = Supervisor(RecordingSink(), RestartPolicy(first_delay_s=600.0))
    code = f"{LEAVES_A_CHILD}; import time; time.sleep(300)"
    await supervisor.start([program("app", code)])
    parent = supervisor.pids["app"]
    await until(lambda: len(descendants(parent)) == 1, "the grandchild")
    (grandchild,) = descendants(parent)
    os.kill(parent, signal.SIGKILL)
    await until(lambda: not is_alive(grandchild), "the end of the grandchild")
    await supervisor.stop()


async def test_stopping_does_not_wait_for_the_pause_before_a_restart() -> None:
    supervisor = Supervisor(RecordingSink(), RestartPolicy(first_delay_s=600.0))
    await supervisor.start([program("app", SLEEPS)])
    os.kill(supervisor.pids["app"], signal.SIGKILL)
    await until(lambda: supervisor.pids == {}, "its end")
    began_s = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - began_s < 60


async def test_kill_ends_a_stop_that_takes_long() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, QUICK)

    async def ready() -> bool:
        return "deaf" in lines.of.get("app", [])

    await supervisor.start([program("app", IGNORES_SIGTERM, ready=ready, stop_timeout_s=600.0)])
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    supervisor.kill()
    await asyncio.wait_for(stopping, 60)


async def test_lines_are_whole_also_without_a_final_newline_and_with_odd_bytes() -> None:
    lines = RecordingSink()
    code = r"import sys; sys.stdout.buffer.write(b'one\ntwo \xff\n' + b'x' * 40000 + b'\nlast'); sys.stdout.flush()"
    supervisor = Supervisor(lines, RestartPolicy(first_delay_s=600.0))
    await supervisor.start([program("app", code)])
    await until(lambda: "last" in lines.of.get("app", []), "the last line")
    await supervisor.stop()
    assert lines.of["app"][:2] == ["one", "two \N{REPLACEMENT CHARACTER}"]
    assert sum(len(line) for line in lines.of["app"][2:-1]) == 40000


async def test_processes_are_replaced_without_a_pause_and_without_counting_as_failures() -> None:
    lines = RecordingSink()
    supervisor = Supervisor(lines, RestartPolicy(first_delay_s=600.0, give_up_after=1))

    async def ready() -> bool:
        return len(lines.of.get("app", [])) == len(starts)

    app = program("app", f"print('up', flush=True); {SLEEPS}", ready=ready)
    starts = [1]
    await supervisor.start([app], [program("other", SLEEPS)])
    before = supervisor.pids
    for _ in range(2):
        starts.append(1)
        await supervisor.replace([app])
    assert supervisor.pids["other"] == before["other"]
    assert not is_alive(before["app"])
    assert lines.of["app"] == ["up"] * 3
    assert lines.said == []
    await supervisor.stop()


async def test_a_process_that_waits_for_its_restart_is_not_waited_for_when_it_is_replaced_and_stopped() -> None:
    supervisor = Supervisor(RecordingSink(), RestartPolicy(first_delay_s=600.0))
    app = program("app", SLEEPS)
    await supervisor.start([app])
    os.kill(supervisor.pids["app"], signal.SIGKILL)
    await until(lambda: supervisor.pids == {}, "its end")
    await asyncio.wait_for(supervisor.replace([app]), 60)
    assert supervisor.pids == {}
    await supervisor.stop()
