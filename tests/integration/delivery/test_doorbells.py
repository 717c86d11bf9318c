"""A delivery is rung for once it is committed."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.bootstrap.delivery import build_routes
from nova_workers.domain.capabilities.rules import CapabilityRegistry
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, CapabilityParts
from nova_workers.domain.delivery import tools as notifications
from nova_workers.domain.delivery.rules.routing import RunEndEffect
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.files import tools as file_send
from nova_workers.domain.notes import tools as notes
from nova_workers.domain.notes.rules import create_note
from nova_workers.ledger.work import Work
from tests.integration.delivery.conftest import DeliveryHarness
from tests.support.harness.workers import Doorbells


@pytest.mark.parametrize(
    ("module", "tool", "given"),
    [
        (notifications, "notify_user", {"message": "Look"}),
        (file_send, "file_send", {"content": "text", "name": "a.md"}),
        (notes, "note_share", {"note_id": ""}),
    ],
)
async def test_a_tool_rings_for_its_delivery(
    deliveries: DeliveryHarness, module: Any, tool: str, given: dict[str, Any]
) -> None:
    bells = Doorbells()
    parts = CapabilityParts(
        database=deliveries.database,
        settings=deliveries.settings,
        clock=SystemClock(),
        grants=CapabilityRegistry(),
        work=Work(deliveries.database, bells),
    )
    await deliveries.webhook()
    if "note_id" in given:
        note = await create_note(deliveries.database, deliveries.tenant_id, "nova", title="A note", content="text")
        given = {"note_id": note.id}
    declared = next(one for one in module.capability(parts).tools if one.name == tool)
    context = CapabilityContext(deliveries.tenant_id, "nova", "thr_1", "run_1", queue="background")
    await declared.run(context, declared.input.model_validate(given))
    assert bells.deliveries_rung == 1
    await deliveries.sender.run_due()
    assert len(deliveries.receiver.got) == 1


async def test_the_end_of_a_run_rings(deliveries: DeliveryHarness) -> None:
    bells = Doorbells()
    effect = RunEndEffect(Work(deliveries.database, bells), build_routes(deliveries.database, deliveries.settings))
    await effect.handle([DueEffect("eff_1", deliveries.tenant_id, "run_1", "thr_1", "delivery", 1)])
    assert bells.deliveries_rung == 1
