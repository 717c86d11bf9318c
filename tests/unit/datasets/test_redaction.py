"""What the rules of a dataset take out of an example."""

import pytest

from nova_workers.contracts.http.datasets import Redaction
from nova_workers.domain.datasets.rules.redaction import ExampleRedactor

_ALL = ExampleRedactor(Redaction(emails=True, numbers=True, secrets=True, words=("Ada", "Ada Lovelace")))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("write to a.b+c@mail.example.com!", "write to [email]!"),
        ("call +49 (30) 1234-5678 now", "call [number] now"),
        ("card 4111 1111 1111 1111.", "card [number]."),
        ("in 2026, for 1,250.50 EUR, v1.2.3", "in 2026, for 1,250.50 EUR, v1.2.3"),
        ("ada lovelace and ADA", "[redacted] and [redacted]"),
        ("https://u:hunter22@host/", "https://u:[redacted]@host/"),
    ],
)
def test_forms_are_replaced(text: str, kept: str) -> None:
    assert _ALL.text(text) == kept


def test_a_value_keeps_its_form_and_its_media() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "4111111111111111"}}
    call = {"type": "tool_use", "id": "1234567890", "input": {"to": ["ada@example.com"]}}
    assert _ALL.json([image, call]) == [image, {**call, "input": {"to": ["[email]"]}}]


def test_without_rules_nothing_changes() -> None:
    assert ExampleRedactor(Redaction()).json({"a": "ada@example.com 1234567"}) == {"a": "ada@example.com 1234567"}
