"""The parts of a worker that execute work orders."""

from __future__ import annotations

from collections.abc import Mapping

from nova_workers.base.config import Settings
from nova_workers.base.config.secret_variables import secret_values
from nova_workers.bootstrap.engine_prices import EnginePrices
from nova_workers.contracts.engine import Engine
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orders.rules.advance import ENGINE
from nova_workers.domain.orders.rules.engine import WorkOrderEngine
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.tick import OrderTicker
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.work import Work


def with_order_engine(engines: Mapping[str, Engine], settings: Settings, work: Work) -> dict[str, Engine]:
    """Return the engines with the one that executes the parts of work orders, which calls the others."""
    orders = WorkOrderEngine(
        work,
        _keys(settings),
        engines,
        EnginePrices(settings),
        rules=CeilingRules.of(settings),
    )
    return {**engines, ENGINE: orders}


def build_order_ticker(settings: Settings, work: Work) -> OrderTicker:
    """Return the tick of open orders."""
    return OrderTicker(work, _keys(settings))


def _keys(settings: Settings) -> OrderKeys:
    return OrderKeys(Vault.of(settings.secrets.source), secret_values(settings))
