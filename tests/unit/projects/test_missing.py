"""What agents need of tools and code in Python, and no worker has."""

from __future__ import annotations

import pytest

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.installs import Installation, InstalledCode
from nova_workers.domain.projects.rules.missing import missing_code
from tests.requirements import proves

SHOP = InstalledCode(name="project:shop", version="1.0", code="abc", tools=("stock", "refund"), agents=("triage",))
OLD = SHOP.model_copy(update={"tools": ("stock",), "code": "old"})
PACKAGE = InstalledCode(name="weather", code="def", agents=("report",))
BROKEN = SHOP.model_copy(update={"problem": "tools/a.py:1: no"})
TOOLS = {"capabilities": {"project:shop": {"tools": ["stock", "refund"]}, "notes": {}}}
CODE = {"engine": "code", "engine_config": {"agent": "shop:triage"}}
REPORT = {"engine": "code", "engine_config": {"agent": "weather:report"}}


@proves("projects.missing")
@pytest.mark.parametrize(
    ("spec", "workers", "missing"),
    [
        ({}, [], []),
        (TOOLS, [[SHOP]], []),
        (TOOLS, [[], [OLD]], ["the tool 'refund' of the project 'shop'"]),
        (TOOLS, [], ["the tool 'stock' of the project 'shop'", "the tool 'refund' of the project 'shop'"]),
        ({"capabilities": {"project:shop": {}}}, [[BROKEN], [PACKAGE]], ["the project 'shop'"]),
        (CODE, [[PACKAGE, SHOP]], []),
        (CODE, [[PACKAGE]], ["the agent 'triage' of the project 'shop'"]),
        (REPORT, [[SHOP], [PACKAGE]], []),
        # One worker must have all of it.
        (TOOLS | REPORT, [[SHOP], [PACKAGE]], ["the agent 'report' of the project 'weather'"]),
    ],
)
def test_what_no_single_worker_has_is_named(
    spec: dict[str, object], workers: list[list[InstalledCode]], missing: list[str]
) -> None:
    assert missing_code(AgentSpec.model_validate({"name": "A", **spec}), workers) == missing


def test_workers_that_can_do_each_others_work_share_a_key() -> None:
    assert Installation().key == Installation((BROKEN,)).key == ""
    keys = [Installation(codes).key for codes in ((SHOP,), (OLD,), (SHOP, PACKAGE), (SHOP, BROKEN))]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]
    assert Installation((SHOP, PACKAGE)).provides == ("project:shop", "code:shop", "code:weather")
    assert Installation((SHOP,)).versions == {"code:shop": "code:shop@abc"}
