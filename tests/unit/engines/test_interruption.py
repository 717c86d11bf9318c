import asyncio

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.engines.turn import Interruption, TurnStopped


async def test_a_wait_inside_a_section_is_cut_short() -> None:
    abort = AbortSignal()
    asyncio.get_running_loop().call_soon(abort.abort, "cancel")
    with Interruption(abort) as interruption, pytest.raises(TurnStopped) as stopped, interruption.section():
        await asyncio.sleep(60)
    assert stopped.value.reason == "cancel"
    assert _cancel_requests() == 0


async def test_a_wait_outside_a_section_is_not_interrupted() -> None:
    abort = AbortSignal()
    with Interruption(abort) as interruption:
        abort.abort("cancel")
        await _run_callbacks()
        with pytest.raises(TurnStopped), interruption.section():
            pytest.fail("The door is closed")


async def test_a_signal_set_by_the_turn_itself_interrupts_no_later_wait() -> None:
    abort = AbortSignal()
    with Interruption(abort) as interruption:
        with interruption.section():
            abort.abort("cancel")
        await _run_callbacks()
    await _run_callbacks()
    assert _cancel_requests() == 0


async def test_a_deadline_cuts_like_a_signal() -> None:
    with Interruption(None, 0.01) as interruption, pytest.raises(TurnStopped) as stopped, interruption.section():
        await asyncio.sleep(60)
    assert stopped.value.reason == "timeout"


async def test_the_first_reason_is_kept() -> None:
    abort = AbortSignal()
    with Interruption(abort, 0.0) as interruption:
        abort.abort("drain")
        await _run_callbacks()
        with pytest.raises(TurnStopped) as stopped:
            interruption.check()
    assert stopped.value.reason == "drain"


async def test_an_outer_cancellation_propagates() -> None:
    abort = AbortSignal()

    async def turn() -> None:
        with Interruption(abort) as interruption, interruption.section():
            await asyncio.sleep(60)

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    task.cancel()
    abort.abort("cancel")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_that_the_cut_provokes_is_still_a_stop() -> None:
    abort = AbortSignal()
    asyncio.get_running_loop().call_soon(abort.abort, "cancel")

    async def read() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("the transport says it in its own way") from None

    with Interruption(abort) as interruption, pytest.raises(TurnStopped), interruption.section():
        await read()
    assert _cancel_requests() == 0


async def test_an_ended_turn_is_unsubscribed() -> None:
    abort = AbortSignal()
    with Interruption(abort, 0.01) as interruption:
        pass
    abort.abort("cancel")
    assert not interruption.requested


async def _run_callbacks() -> None:
    """Let the loop run what is due, timers of this moment among it."""
    for _ in range(3):
        await asyncio.sleep(0)


def _cancel_requests() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
