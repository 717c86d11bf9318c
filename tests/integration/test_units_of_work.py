"""What follows the commit of a unit of work: in one order, only after a commit, and without failing its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nova_workers.base.errors import NotFound, OutcomeUnknown, Unavailable
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.ledger import work as work_module
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import UnitOfWork, Work
from nova_workers.ledger.write_record import own_record
from tests.requirements import proves
from tests.support.harness.fault_injection import FaultInjectingDatabase, FaultInjector

_INSERT = "INSERT INTO tenants (id, name) VALUES ('ten_1', 'x')"
_COUNT = "SELECT count(*) FROM tenants WHERE id = 'ten_1'"
_BELL = Doorbell("run_1", "thr_1", "interactive")
_NEWS = TreeNews(orchestration_id="orc_1")


class _Ports:
    """The dispatcher and the notifier of a unit of work, which note what is called and what is committed then."""

    def __init__(self, database: Database) -> None:
        self.called: list[str] = []
        self.is_broken = False
        self.is_slow = False
        self._database = database

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        self.called.append("ring")

    def ring_effects(self) -> None:
        self.called.append("effects")

    def ring_deliveries(self) -> None:
        self.called.append("deliver")

    def publish(self) -> None:
        self.called.append("publish")
        if self.is_broken:
            raise ValueError("It is no event.")

    def announce_tree(self, news: TreeNews) -> None:
        self.called.append("announce")

    async def apply_interrupt(self, run_id: str) -> None:
        await self._apply("interrupt")

    async def notify_order(self, order_id: str) -> None:
        await self._apply("order")

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        await self._apply("cancel")

    async def _apply(self, name: str) -> None:
        assert await self._database.fetchval(_COUNT) == 1
        self.called.append(name)
        if self.is_slow:
            await asyncio.Event().wait()
        if self.is_broken:
            raise Unavailable("It went away.")


_ORDER = ["publish", "announce", "interrupt", "ring", "effects", "deliver", "order", "cancel"]


def _all(tx: UnitOfWork, ports: _Ports) -> None:
    tx.cancel([CancelRequest(_BELL, ended=False, running=True)])
    tx.ring([_BELL])
    tx.interrupt("run_1")
    tx.announce(_NEWS)
    tx.ring_deliveries()
    tx.ring_effects()
    tx.notify_order("trc_1")
    tx.publish(ports.publish)


@pytest.fixture
def ports(database: Database) -> _Ports:
    return _Ports(database)


@pytest.mark.parametrize("is_broken", [False, True])
@proves("unavailable.written")
async def test_what_follows_a_commit_is_done_in_one_order_and_fails_no_caller(
    is_broken: bool, database: Database, ports: _Ports
) -> None:
    ports.is_broken = is_broken
    async with Work(database, ports, ports).begin() as tx:
        await tx.connection.execute(_INSERT)
        _all(tx, ports)
        assert not ports.called
    assert ports.called == _ORDER


@proves("unavailable.written")
async def test_a_caller_does_not_wait_for_what_takes_long_after_its_commit(
    database: Database, ports: _Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_module, "_PATIENCE_S", 0.01)
    ports.is_slow = True
    work = Work(database, ports, ports)
    async with asyncio.timeout(30), work.begin() as tx:
        await tx.connection.execute(_INSERT)
        _all(tx, ports)
    assert ports.called == _ORDER
    await work.close()


async def test_nothing_follows_what_was_rolled_back_or_is_not_confirmed(database: Database, ports: _Ports) -> None:
    async def roll_back(work: Work) -> None:
        async with work.begin() as tx:
            await tx.connection.execute(_INSERT)
            _all(tx, ports)
            raise NotFound("It is not there.")

    async def commit(work: Work) -> None:
        async with work.begin() as tx:
            await tx.connection.execute(_INSERT)
            _all(tx, ports)

    with pytest.raises(NotFound):
        await roll_back(Work(database, ports, ports))
    faults = FaultInjector()
    faults.plan("lose_reply", "other")
    with pytest.raises(Unavailable):
        await commit(Work(FaultInjectingDatabase(database, faults), ports, ports))
    assert await database.fetchval(_COUNT) == 1
    assert not ports.called


async def test_what_was_to_follow_a_commit_in_doubt_follows_the_unit_that_finds_it(
    database: Database, ports: _Ports
) -> None:
    async def commit(unit: UnitOfWork) -> None:
        async with unit as tx:
            await tx.connection.execute(_INSERT)
            _all(tx, ports)

    faults = FaultInjector()
    faults.plan("lose_reply", "other")
    doubted = Work(FaultInjectingDatabase(database, faults), ports, ports).begin()
    with pytest.raises(OutcomeUnknown):
        await commit(doubted)
    async with Work(database, ports, ports).begin_statement() as tx:
        assert await tx.connection.fetchval(_COUNT) == 1
        assert not tx.is_followed
        tx.take_over(doubted)
        assert tx.is_followed
    assert ports.called == _ORDER


@pytest.mark.parametrize(
    ("statement", "may_be_written"),
    [(_INSERT, True), ("SELECT 1", False), ("INSERT INTO tenants (id) VALUES (1)", False)],
)
async def test_a_record_has_what_was_committed_and_not_what_was_refused(
    statement: str, may_be_written: bool, database: Database
) -> None:
    async def write(**values: Any) -> None:
        await database.execute(statement, **values)

    with own_record() as whole:
        with own_record() as part:
            try:
                await write()
            except Exception:
                pass
        assert part.may_be_written is whole.may_be_written is may_be_written
