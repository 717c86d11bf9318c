"""One chaos run: a fleet, a workload, faults by a schedule, calm, and the checker's verdict."""

from __future__ import annotations

import asyncio
import random
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.checker import GuestRows, Ledger, Violation, load, load_guests, violations
from tests.chaos.history import History, Recorder
from tests.chaos.runner.client import RecordingClient
from tests.chaos.runner.door_clients import DoorClients
from tests.chaos.runner.fleet import ChaosFleet, Leases
from tests.chaos.runner.guests import Guests
from tests.chaos.runner.scenarios import SCENARIOS, Scenario, Stage
from tests.chaos.runner.workload import AGENT, Pace, Workload

_WARM_UP_S = 3.0
_TWO_AT_ONCE = 0.25
_POLL_S = 0.2

_OPEN = """
SELECT (SELECT count(*) FROM runs WHERE tenant_id = ANY ($1) AND status IN ('queued', 'running', 'waiting'))
     + (SELECT count(*) FROM work_orders WHERE tenant_id = ANY ($1) AND state <> 'ended')
"""
_DUE = """
SELECT (SELECT count(*) FROM effects WHERE tenant_id = ANY ($1) AND status IN ('pending', 'running')
                                       AND due_at <= now())
     + (SELECT count(*) FROM deliveries WHERE tenant_id = ANY ($1) AND target <> 'user' AND status = 'pending'
                                          AND due_at <= now())
"""


@dataclass(frozen=True)
class Outcome:
    """What a run found."""

    history: History
    ledger: Ledger
    guests: GuestRows
    violations: list[Violation]


class Campaign:
    """Runs scenarios against a fleet while clients work with it.

    Args:
        home: Where data, logs and the record go.
        seed: Of all choices.
        leases: Times of the run protocol.
        pace: How much clients do.
        own_disk: Whether Postgres gets a disk that can be full.
    """

    def __init__(self, home: Path, seed: int, leases: Leases, pace: Pace, *, own_disk: bool = False) -> None:
        self._home = home
        self._seed = seed
        self._leases = leases
        self._pace = pace
        self._own_disk = own_disk
        self._rng = random.Random(seed)
        self._number = 0
        self.record = home / "history.jsonl"

    async def scenarios(self, chosen: Sequence[Scenario]) -> Outcome:
        """Run scenarios one after the other, each after a moment of calm."""
        async with self._stage() as (stage, recorder):
            for each in chosen:
                await self._act(stage, recorder, [each])
                await asyncio.sleep(self._rng.uniform(2, 4))
        return self._outcome

    async def mix(self, seconds: float, among: Sequence[Scenario]) -> Outcome:
        """Run random scenarios, one or two at a time, for a time."""
        async with self._stage() as (stage, recorder):
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                await self._act(stage, recorder, self._choose(among))
                await asyncio.sleep(self._rng.uniform(0.5, 6))
        return self._outcome

    def _choose(self, among: Sequence[Scenario]) -> list[Scenario]:
        first = self._rng.choice(among)
        others = [each for each in among if not each.touches & first.touches]
        if others and self._rng.random() < _TWO_AT_ONCE:
            return [first, self._rng.choice(others)]
        return [first]

    @asynccontextmanager
    async def _stage(self) -> AsyncGenerator[tuple[Stage, Recorder]]:
        """Run fleet and workload around the block; heal afterwards, and wait until all is settled."""
        with Recorder(self.record) as recorder:
            leases = self._leases
            recorder.write("settings", seed=self._seed, lease_s=leases.lease_s, bound_s=leases.bound_s)
            _say("starting the fleet")
            async with ChaosFleet(self._home, recorder, leases, own_disk=self._own_disk) as fleet:
                client = RecordingClient(fleet.api_urls, fleet.api_key, recorder, random.Random(self._seed + 1))
                async with client.http:
                    workload = Workload(fleet, client, random.Random(self._seed + 2), self._pace)
                    guests = Guests(
                        fleet,
                        recorder,
                        random.Random(self._seed + 3),
                        gaps=self._pace.guest_gaps,
                        has_poison=self._pace.has_poison,
                    )
                    doors = DoorClients(
                        fleet.api_urls,
                        fleet.api_key,
                        AGENT,
                        recorder,
                        random.Random(self._seed + 4),
                        gap_s=self._pace.door_gap_s,
                    )
                    await workload.start()
                    await guests.start()
                    doors.start()
                    _say("the fleet is up, and clients work with it")
                    await asyncio.sleep(_WARM_UP_S)
                    yield Stage(fleet, self._rng), recorder
                    fleet.heal()
                    recorder.write("healed")
                    _say("every fault is removed; clients stop")
                    await guests.stop()
                    await workload.stop(time.time(), self._patience_s())
                    await doors.stop(self._patience_s())
                    await self._settle(fleet)
                    await guests.close()
                    recorder.write("settled")
                    _say("settled")
                self._outcome = await self._check(fleet)
                if self._outcome.violations:
                    await fleet.dump(self._home / "ledger.sql")

    async def _act(self, stage: Stage, recorder: Recorder, chosen: Sequence[Scenario]) -> None:
        await asyncio.gather(*(self._make(stage, recorder, each) for each in chosen))

    async def _make(self, stage: Stage, recorder: Recorder, chosen: Scenario) -> None:
        self._number += 1
        number, own = self._number, Stage(stage.fleet, random.Random(self._rng.random()))
        began, failed = time.time(), False
        _say(f"fault {number:3} begins  {chosen.name}")
        try:
            await chosen.act(own)
        except Exception:
            # The run goes on, and the report has it.
            failed = True
            own.say(f"FAILED: {traceback.format_exc(limit=-1)}")
        detail = ", ".join(own.said)
        recorder.write(
            "fault",
            number=number,
            name=chosen.name,
            detail=detail,
            began_at=began,
            failed=failed,
            breaks=chosen.breaks,
            touches=sorted(chosen.touches),
        )
        _say(f"fault {number:3} ended   {chosen.name}: {detail}")

    async def _settle(self, fleet: ChaosFleet) -> None:
        """Wait until nothing is open and nothing is due, for as long as it may take."""
        for count in (_OPEN, _DUE):
            ends_at = time.monotonic() + self._patience_s()
            while time.monotonic() < ends_at and await self._count(fleet, count):  # noqa: ASYNC110 - rows, no event
                await asyncio.sleep(_POLL_S)

    async def _count(self, fleet: ChaosFleet, statement: str) -> int:
        return (await fleet.sql(statement, [fleet.tenant_id, fleet.guest_tenant_id]))[0][0]

    def _patience_s(self) -> float:
        """Return how long to wait for the last run: beyond the bound, so that the checker sees which one breaks it."""
        return self._leases.bound_s + 15

    async def _check(self, fleet: ChaosFleet) -> Outcome:
        ledger = await load(fleet.servers.database_url, fleet.tenant_id)
        guests = await load_guests(fleet.servers.database_url, fleet.guest_tenant_id)
        history = History.read(self.record, fleet.outside_record)
        found = await asyncio.to_thread(violations, history, ledger, guests)
        return Outcome(history, ledger, guests, found)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def brief() -> list[Scenario]:
    """Return the scenarios that fit into a run of a minute."""
    return [each for each in SCENARIOS.values() if each.in_mix and each.is_brief]
