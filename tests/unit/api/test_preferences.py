"""The `Prefer` header is read as RFC 7240 defines it."""

import pytest

from api.routes.orders.preferences import Preferences, read_preferences


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], Preferences()),
        (["respond-async"], Preferences(True)),
        (["Respond-Async ; foo=1, wait=10"], Preferences(True, 10)),
        (['respond-async, wait="10"'], Preferences(True, 10)),
        (["wait = 5"], Preferences(False, 5)),
        (["wait=5, wait=9"], Preferences(False, 5)),
        (["handling=lenient", "WAIT=7"], Preferences(False, 7)),
        (['note="respond-async, wait=3"'], Preferences()),
        (['note="a \\" respond-async"; x="y,z", wait=3'], Preferences(False, 3)),
        (["not-respond-async"], Preferences()),
        (["respond-asynchronously"], Preferences()),
        (["wait=soon, respond-async"], Preferences(True)),
        (["wait=-1"], Preferences()),
        (["wait"], Preferences()),
        ([", ,respond-async,"], Preferences(True)),
        (["@@@, respond-async"], Preferences(True)),
        (['"unclosed, respond-async'], Preferences(True)),
        (["wait=" + "9" * 30], Preferences()),
        (['"' * 20_000 + "a" * 20_000], Preferences()),
    ],
)
def test_preferences_are_read(headers: list[str], found: Preferences) -> None:
    assert read_preferences(headers) == found


def test_what_is_applied_is_named() -> None:
    assert Preferences(True, 5).applied == "respond-async, wait=5"
    assert Preferences(False, 0).applied == "wait=0"
    assert not Preferences().applied
