"""Roles and what a key may give to others."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import pairwise
from typing import get_args

import pytest
from pydantic import ValidationError

from nova_workers.base.errors import Forbidden
from nova_workers.base.vocabulary import AccessRole
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.scopes import INCLUDED, ROLES, Scope, whole_scopes, with_included
from nova_workers.domain.keys.rules.giving import KeyRights


def test_each_role_has_what_the_one_before_it_has_and_none_reaches_other_tenants() -> None:
    assert set(ROLES) == set(get_args(AccessRole))
    having = [with_included(scopes) for scopes in ROLES.values()]
    for less, more in pairwise(having):
        assert less < more
    assert having[-1] == set(get_args(Scope)) - {"operator"}


def test_a_viewer_has_only_scopes_that_read() -> None:
    assert all(scope.endswith(":read") for scope in ROLES["viewer"])


def test_included_scopes_include_no_others() -> None:
    assert not {scope for scopes in INCLUDED.values() for scope in scopes} & set(INCLUDED)
    assert with_included(whole_scopes()) == set(get_args(Scope))


def test_a_role_takes_the_place_of_scopes() -> None:
    assert KeyCreate(name="ann", role="viewer").granted() == ROLES["viewer"]
    with pytest.raises(ValidationError, match="not both"):
        KeyCreate(name="ann", role="viewer", scopes=["runs"])


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("203.0.113.7", "203.0.113.7/32"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("2001:db8:0::1", "2001:db8::1/128"),
    ],
)
def test_networks_are_stored_in_one_form(given: str, stored: str) -> None:
    assert KeyCreate(name="ci", networks=(given,)).networks == (stored,)


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "10.0.0.0/33", "example.org", "", "::ffff:10.0.0.0/104"])
def test_a_wrong_network_refuses_the_key_and_says_what_is_accepted(wrong: str) -> None:
    with pytest.raises(ValidationError, match=r"should be (a network such as 10\.0\.0\.0/8|written as IPv4)"):
        KeyCreate(name="ci", networks=("10.0.0.0/8", wrong))


def test_a_key_gives_no_scope_that_it_lacks() -> None:
    rights = KeyRights(with_included({"runs", "keys"}))
    rights.check(["runs:read", "keys"], [])
    with pytest.raises(Forbidden, match="'agents:read'"):
        rights.check(["runs", "agents:read"], [])


@pytest.mark.parametrize("networks", [[], ["10.0.0.0/7"], ["10.1.0.0/16", "192.0.2.0/24"], ["::/0"]])
def test_a_key_of_some_networks_makes_no_key_that_is_valid_in_others(networks: list[str]) -> None:
    rights = KeyRights({"runs"}, [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")])
    rights.check(["runs"], [ip_network("10.1.0.0/16"), ip_network("2001:db8:1::/48")])
    with pytest.raises(Forbidden, match="within these"):
        rights.check(["runs"], [ip_network(network) for network in networks])
