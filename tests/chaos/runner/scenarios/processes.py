"""Processes die, hang, and are asked to end."""

from __future__ import annotations

import signal

from tests.chaos.runner.fleet import Member
from tests.chaos.runner.scenarios.registry import Stage, scenario

_RUNS = ("I1", "I3", "I4", "I6", "I7")


@scenario("workers", proves=_RUNS)
async def kill_worker(stage: Stage) -> None:
    """SIGKILL to a worker."""
    stage.any_of("worker").kill()
    await stage.hold(1, 2)


@scenario("workers", proves=_RUNS)
async def kill_both_workers(stage: Stage) -> None:
    """SIGKILL to both workers at once."""
    for worker in stage.fleet.of_role("worker"):
        worker.kill()
    await stage.hold(1, 3)


@scenario("apis", proves=("I1", "I7"))
async def kill_api(stage: Stage) -> None:
    """SIGKILL to an API."""
    stage.any_of("api").kill()
    await stage.hold(1, 2)


@scenario("beats", proves=("I4", "I5"))
async def kill_beat(stage: Stage) -> None:
    """SIGKILL to a beat, at any moment."""
    stage.any_of("beat").kill()
    await stage.hold(0.5, 2)


@scenario("beats", proves=("I4", "I5"))
async def lose_both_beats(stage: Stage) -> None:
    """SIGKILL to both beats; none is there for a while."""
    for beat in stage.fleet.of_role("beat"):
        beat.stays_down = True
        beat.kill()
    await stage.hold(3, 8)
    for beat in stage.fleet.of_role("beat"):
        beat.stays_down = False


@scenario("console", proves=("I1",))
async def kill_console(stage: Stage) -> None:
    """SIGKILL to the console."""
    stage.any_of("console").kill()
    await stage.hold(1, 2)


@scenario("outside", proves=("I6", "I7"))
async def kill_outside(stage: Stage) -> None:
    """SIGKILL to the server of models, tools, embeddings and webhooks."""
    stage.fleet.members["outside-0"].kill()
    await stage.hold(1, 3)


@scenario("workers", proves=_RUNS)
async def terminate_worker(stage: Stage) -> None:
    """SIGTERM to a worker: it drains, and another one continues its runs."""
    worker = stage.any_of("worker")
    worker.terminate()
    await worker.process.ended(2 * stage.lease_s + 10)


@scenario("workers", proves=_RUNS)
async def terminate_then_kill_worker(stage: Stage) -> None:
    """SIGTERM to a worker, and SIGKILL while it drains."""
    worker = stage.any_of("worker")
    worker.terminate()
    await stage.hold(0.05, 1.5)
    worker.kill()


@scenario("workers", "apis", "beats", proves=_RUNS)
async def rolling_restart(stage: Stage) -> None:
    """SIGTERM to each process of the fleet, one after the other, as a deploy does."""
    members = [member for member in stage.fleet.members.values() if member.role != "outside"]
    stage.rng.shuffle(members)
    for member in members:
        member.terminate()
        await member.process.ended(2 * stage.lease_s + 15)
        await stage.hold(1.5)


@scenario("workers", proves=("I2", "I3", "I6", "I7"), is_brief=False)
async def freeze_worker(stage: Stage) -> None:
    """SIGSTOP to a worker for three leases: it wakes up when its runs are another's."""
    await _freeze(stage, stage.any_of("worker"), 3 * stage.lease_s)


@scenario("workers", proves=("I2", "I3", "I6", "I7"))
async def hang_worker(stage: Stage) -> None:
    """SIGSTOP to a worker for about one lease, so that it may still have its runs or not."""
    await _freeze(stage, stage.any_of("worker"), stage.rng.uniform(0.6, 1.4) * stage.lease_s)


@scenario("apis", proves=("I1", "I7"))
async def freeze_api(stage: Stage) -> None:
    """SIGSTOP to an API for a while."""
    await _freeze(stage, stage.any_of("api"), stage.rng.uniform(2, 8))


@scenario("beats", proves=("I5",))
async def freeze_beat(stage: Stage) -> None:
    """SIGSTOP to a beat for a while; it then sends what it did not."""
    await _freeze(stage, stage.any_of("beat"), stage.rng.uniform(2, 10))


@scenario("workers", "apis", "beats", "outside", proves=("I1", "I4", "I5", "I7"))
async def kill_every_process(stage: Stage) -> None:
    """SIGKILL to every process but the two servers."""
    for member in stage.fleet.members.values():
        member.kill()
    await stage.hold(1, 2)


async def _freeze(stage: Stage, member: Member, seconds: float) -> None:
    member.send_signal(signal.SIGSTOP)
    try:
        await stage.hold(seconds)
    finally:
        member.send_signal(signal.SIGCONT)
