"""Fixtures for tests of the workspace."""

import pytest

from nova_workers.domain.tasks.rules.service import Tasks
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.capabilities.tool_caller import add_tenants
from tests.integration.workspace.task_data import RecordedDoorbells


@pytest.fixture
def bells() -> RecordedDoorbells:
    """The doorbells that were rung."""
    return RecordedDoorbells()


@pytest.fixture
async def tasks(database: Database, bells: RecordedDoorbells) -> Tasks:
    """The tasks of two tenants, each with the agents `a` and `b`."""
    await add_tenants(database)
    return Tasks(Work(database, bells))
