"""The definitions for programs in other languages are those of the models."""

from pathlib import Path

import orjson
import pytest

from nova_workers.contracts.orders.definitions import json_schema, typescript
from tests.support.processes.command_line import Nova

CONTRACTS = Path(__file__).parents[3] / "docs" / "contracts"


def test_the_json_schema_in_the_documents_is_that_of_the_models() -> None:
    assert orjson.loads((CONTRACTS / "work-orders-v1.schema.json").read_bytes()) == json_schema()


def test_the_typescript_in_the_documents_is_that_of_the_models() -> None:
    assert (CONTRACTS / "work-orders-v1.ts").read_text("utf-8") == typescript()


@pytest.mark.parametrize(
    ("words", "file"), [((), "work-orders-v1.schema.json"), (("--typescript",), "work-orders-v1.ts")]
)
def test_the_command_prints_the_definitions(words: tuple[str, ...], file: str, tmp_path: Path) -> None:
    printed = Nova({"NOVA_HOME": str(tmp_path)}).good("orders", "contract", *words).out
    assert printed == (CONTRACTS / file).read_text("utf-8")
