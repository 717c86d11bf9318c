"""Programs that are run to their end."""

import asyncio
import os
import sys
import time

import pytest

from nova_workers.child_process import Bounds, run_child

BOUNDS = Bounds(timeout_s=20, head_bytes=1_000)


async def test_a_program_reads_what_it_is_given_and_its_output_is_returned() -> None:
    given = b"line\n" * 100_000
    result = await run_child(["wc", "-l"], BOUNDS, env={"PATH": os.defpath}, given=given)
    assert (result.exit_code, result.text().strip()) == (0, "100000")


async def test_a_program_that_does_not_read_what_it_is_given_does_no_harm() -> None:
    result = await run_child(["true"], BOUNDS, env={"PATH": os.defpath}, given=bytes(5_000_000))
    assert result.exit_code == 0


async def test_it_has_the_environment_that_it_is_given_and_no_other() -> None:
    result = await run_child(["/usr/bin/env"], BOUNDS, env={"A": "b"})
    assert {line.split("=")[0] for line in result.text().splitlines()} == {"A", "CHILD_GROUP"}


async def test_errors_are_output_only_where_that_is_wanted() -> None:
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


async def test_output_without_end_costs_no_memory() -> None:
    result = await run_child(["/usr/bin/yes"], Bounds(0.5, 100, 100), env={})
    assert result.exit_code is None
    assert len(result.head + result.tail) == 200
    assert result.omitted_bytes > 1_000_000


async def test_a_program_that_is_not_there_is_an_error_and_leaves_no_pipe_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await run_child(["/nothing/here"], BOUNDS, env={})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("end", ["", "wait"])
async def test_the_whole_group_ends_with_its_leader(end: str) -> None:
    read_end, write_end = os.pipe()
    command = ["/bin/sh", "-c", f"sleep 60 & sleep 60 & {end}"]
    result = await run_child(command, Bounds(0.5, 100), env={"PATH": os.defpath}, passed=(write_end,))
    assert result.exit_code == (None if end else 0)
    os.close(write_end)
    async with asyncio.timeout(5):
        assert await asyncio.to_thread(os.read, read_end, 1) == b""
    os.close(read_end)


async def test_who_holds_the_output_open_from_elsewhere_does_not_hold_the_caller() -> None:
    # In another session and without the mark: nobody finds it, and it keeps the pipe.
    hide = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.execve('/bin/sleep', ['sleep', '8'], {})\n"
    began_s = time.monotonic()
    result = await run_child([sys.executable, "-I", "-S", "-c", hide + "print('done')"], BOUNDS, env={}, hunt=True)
    assert (result.exit_code, result.text()) == (0, "done\n")
    assert time.monotonic() - began_s < 7


async def test_a_second_cancellation_does_not_leave_the_program_running() -> None:
    read_end, write_end = os.pipe()
    task = asyncio.create_task(run_child(["/bin/sleep", "60"], BOUNDS, env={}, passed=(write_end,), hunt=True))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(write_end)
    # Its end of the pipe is closed when it is gone.
    async with asyncio.timeout(5):
        assert await asyncio.to_thread(os.read, read_end, 1) == b""
    os.close(read_end)
