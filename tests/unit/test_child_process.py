"""Programs that are run to their end."""

import asyncio
import os
import sys

import pytest

from nova_workers.base.child_process import Bounds, run_child
from tests.requirements import proves

linux = pytest.mark.skipif(sys.platform != "linux", reason="Programs have a supervisor on Linux only")

BOUNDS = Bounds(timeout_s=20, head_bytes=1_000)


async def test_a_program_gets_its_input_and_its_output_is_returned() -> None:
    given = b"line\n" * 100_000
    result = await run_child(["wc", "-l"], BOUNDS, env={"PATH": os.defpath}, given=given)
    assert (result.exit_code, result.text().strip()) == (0, "100000")


async def test_a_program_may_ignore_its_input() -> None:
    result = await run_child(["true"], BOUNDS, env={"PATH": os.defpath}, given=bytes(5_000_000))
    assert result.exit_code == 0


async def test_a_program_has_only_the_given_environment() -> None:
    result = await run_child(["/usr/bin/env"], BOUNDS, env={"A": "b"})
    assert result.text() == "A=b\n"


async def test_stderr_is_output_only_if_requested() -> None:
    command = ["/bin/sh", "-c", "echo out; echo err >&2"]
    assert (await run_child(command, BOUNDS, env={})).text() == "out\n"
    assert (await run_child(command, BOUNDS, env={}, with_errors=True)).text() == "out\nerr\n"


@pytest.mark.parametrize(("head", "tail"), [(0, 0), (10, 0), (0, 10), (10, 10), (100, 100)])
async def test_the_first_and_the_last_bytes_are_kept(head: int, tail: int) -> None:
    written = "".join(str(at % 10) for at in range(100)).encode()
    result = await run_child(["/bin/echo", "-n", written.decode()], Bounds(20, head, tail), env={})
    assert result.head == written[:head]
    assert result.head + result.tail == (written if head + tail >= 100 else written[:head] + written[100 - tail :])
    assert result.omitted_bytes == max(100 - head - tail, 0)


async def test_endless_output_costs_no_memory() -> None:
    result = await run_child(["/usr/bin/yes"], Bounds(0.5, 100, 100), env={})
    assert result.exit_code is None
    assert len(result.head + result.tail) == 200
    assert result.omitted_bytes > 1_000_000


async def test_a_missing_program_is_an_error_and_leaves_no_pipe_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await run_child(["/nothing/here"], BOUNDS, env={})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("end", ["", "wait"])
async def test_the_whole_group_ends_with_its_leader(end: str) -> None:
    read_end, write_end = os.pipe()
    command = ["/bin/sh", "-c", f"sleep 60 & sleep 60 & {end}"]
    bounds = Bounds(0.5 if end else 20, 100)
    result = await run_child(command, bounds, env={"PATH": os.defpath}, passed=(write_end,))
    assert result.exit_code == (None if end else 0)
    os.close(write_end)
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(os.read, read_end, 1) == b""
    os.close(read_end)


async def test_the_exit_code_after_a_signal_is_that_of_shells() -> None:
    assert (await run_child(["/bin/sh", "-c", "kill -9 $$"], BOUNDS, env={})).exit_code == 128 + 9


# It leaves its session, clears its environment, loses its parents, and holds a pipe by which its end is seen. Its
# leader goes on once it has escaped: a leader that ended before would take it along.
ESCAPE = """
import os, sys
read_end, write_end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.write({escaped}, b"x")
        os.write(write_end, b"x")
        os.execve("/bin/sleep", ["sleep", "60"], {{}})
    os._exit(0)
os.wait()
os.read(read_end, 1)
{then}
"""


def _escaping(escaped: int, then: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", ESCAPE.format(escaped=escaped, then=then)]


async def _ends(read_end: int) -> bool:
    """Return whether no process holds the other end of a pipe any more, within a bound."""
    async with asyncio.timeout(60):
        return await asyncio.to_thread(os.read, read_end, 1) == b""


@linux
@pytest.mark.parametrize("end", ["exit", "timeout", "cancel"])
@proves("child.descendants")
async def test_a_process_with_a_session_of_its_own_and_no_environment_ends_with_its_call(end: str) -> None:
    read_end, write_end = os.pipe()
    then = "" if end == "exit" else "import time; time.sleep(60)"
    bounds = Bounds(1.0 if end == "timeout" else 30.0, 100)
    call = asyncio.create_task(run_child(_escaping(write_end, then), bounds, env={}, passed=(write_end,)))
    assert await asyncio.to_thread(os.read, read_end, 1) == b"x"
    os.close(write_end)
    if end == "cancel":
        call.cancel()
    await asyncio.wait((call,))
    assert await _ends(read_end)
    os.close(read_end)


@linux
@pytest.mark.parametrize("thread", ["main", "other"])
@proves("child.killed-worker")
async def test_no_process_of_a_program_outlives_its_killed_caller(thread: str) -> None:
    read_end, write_end = os.pipe()
    escaping = _escaping(write_end, "import time; time.sleep(60)")
    run = f"asyncio.run(run_child({escaping!r}, Bounds(60, 100), env={{}}, passed=({write_end},)))"
    within = run if thread == "main" else f"t = threading.Thread(target=lambda: {run}); t.start(); t.join()"
    program = f"import asyncio, threading\nfrom nova_workers.base.child_process import Bounds, run_child\n{within}"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, pass_fds=(write_end,))
    os.close(write_end)
    assert await asyncio.to_thread(os.read, read_end, 1) == b"x"
    worker.kill()
    await worker.wait()
    assert await _ends(read_end)
    os.close(read_end)


@linux
async def test_a_program_that_ends_its_group_does_not_end_its_supervisor() -> None:
    read_end, write_end = os.pipe()
    call = run_child(_escaping(write_end, "os.kill(0, 9)"), BOUNDS, env={}, passed=(write_end,))
    assert (await call).exit_code == 128 + 9
    os.close(write_end)
    assert await asyncio.to_thread(os.read, read_end, 1) == b"x"
    assert await _ends(read_end)
    os.close(read_end)


async def test_a_second_cancellation_does_not_leave_the_program_running() -> None:
    read_end, write_end = os.pipe()
    program = ["/bin/sh", "-c", f"printf x >/dev/fd/{write_end}; exec /bin/sleep 60"]
    task = asyncio.create_task(run_child(program, BOUNDS, env={}, passed=(write_end,)))
    assert await asyncio.to_thread(os.read, read_end, 1) == b"x"
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(write_end)
    # Its end of the pipe is closed when it is gone.
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(os.read, read_end, 1) == b""
    os.close(read_end)
