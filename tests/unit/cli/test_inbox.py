"""`nova inbox`: each item in one line, and how an open question is answered."""

from datetime import UTC, datetime
from typing import Any

import pytest

from nova_workers.cli.workspace.inbox import describe
from nova_workers.contracts.deliveries import DeliveryView


def _item(kind: str, payload: dict[str, Any], status: str = "pending") -> DeliveryView:
    given = {"id": "dlv_1", "kind": kind, "status": status, "target": "user", "payload": payload, "run_id": "run_1"}
    absent = {"agent_id": None, "thread_id": None, "error": None, "delivered_at": None}
    return DeliveryView.model_validate({**given, **absent, "created_at": datetime.now(UTC)})


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            _item("question", {"text": "Tea?", "options": ["yes", "no"]}),
            "Tea? [yes | no] → nova runs answer run_1 TEXT",
        ),
        (_item("question", {"text": "Tea?", "options": []}, "closed"), "Tea?"),
        (
            _item("approval", {"text": "Rule 1.", "tool_name": "Bash", "params": '{"command": "ls"}'}),
            'Rule 1. Bash {"command": "ls"} → nova runs answer run_1 --approve',
        ),
    ],
)
def test_an_open_question_says_how_it_is_answered(item: DeliveryView, words: str) -> None:
    assert describe(item) == words


def test_a_delivery_of_the_audit_log_is_described_by_its_number_of_records() -> None:
    assert describe(_item("audit_recorded", {"ids": ["aud_1", "aud_2"]})) == "2 records"
