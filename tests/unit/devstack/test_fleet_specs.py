"""The processes of `nova up`, as they are started."""

from __future__ import annotations

import json

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings
from nova_workers.devstack.fleet_specs import api_spec
from tests.requirements import proves

_PROXY = "10.0.0.7"


@proves("security.sign-in")
@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        ("127.0.0.1", [_PROXY, "127.0.0.1", "::1"]),
        ("0.0.0.0", [_PROXY, "127.0.0.1", "::1"]),
        ("192.0.2.5", [_PROXY, "127.0.0.1", "::1", "192.0.2.5"]),
    ],
)
def test_the_api_trusts_the_console_beside_it_to_state_addresses(host: str, trusted: list[str]) -> None:
    settings = Settings(api=ApiSettings(trusted_proxies=(_PROXY,)))
    spec = api_spec(settings, host=host, port=8700, url="http://127.0.0.1:8700", env={"A": "1"}, with_console=True)
    assert json.loads(spec.env["NOVA_API__TRUSTED_PROXIES"]) == trusted
    assert spec.env["A"] == "1"


def test_without_a_console_the_api_trusts_no_program_of_this_machine() -> None:
    spec = api_spec(Settings(), host="127.0.0.1", port=1, url="http://127.0.0.1:1", env={}, with_console=False)
    assert "NOVA_API__TRUSTED_PROXIES" not in spec.env
