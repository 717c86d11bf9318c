"""Channels: found in packages, and resolved to agents when a process starts."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.domain.delivery.rules.channels import CHANNEL_GROUP, ChannelParts, ChannelRoutes, load_channels
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves


class NullChannel:
    """A channel without a destination."""

    def __init__(self, name: str = "nowhere") -> None:
        self.name = name
        self.closed = False

    async def deliver(self, item: DeliveryItem) -> None:
        """Do nothing."""

    async def close(self) -> None:
        self.closed = True


def made(parts: ChannelParts) -> NullChannel:
    """The entry point of a package."""
    assert isinstance(parts.outbound, Outbound)
    return NullChannel("pigeon")


@pytest.fixture
def parts() -> ChannelParts:
    database = PostgresDatabase("postgresql://unused", pool_size=1)
    return ChannelParts(Outbound(OutboundRules()), Secrets(database, Vault([])), database)


def _entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, CHANNEL_GROUP)


@proves("outbox.channels")
def test_a_channel_comes_from_a_package_and_only_if_it_is_configured(parts: ChannelParts) -> None:
    found = [_entry("pigeon", f"{__name__}:made"), _entry("broken", "no_such_module:made")]
    (channel,) = load_channels({"pigeon"}, parts, found=found)
    assert channel.name == "pigeon"
    with pytest.raises(ConfigurationError, match="'broken' cannot be loaded from 'no_such_module:made'"):
        load_channels({"broken"}, parts, found=found)
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load_channels({"gone"}, parts, found=[_entry("gone", f"{__name__}:nothing")])
    assert load_channels({"pigeon"}, parts) == []


@proves("outbox.channels")
@pytest.mark.parametrize(
    ("channels", "by_agent", "told"),
    [
        ((), {"*": ("webhooks",)}, "webhooks"),
        (("a",), {"nova": ("a", "b")}, "'b', which is not installed"),
        (("a", "a"), {}, "Two channels are called 'a'"),
        (("user",), {}, "that is the inbox"),
    ],
)
def test_a_missing_or_duplicate_channel_stops_the_start(
    channels: tuple[str, ...], by_agent: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        ChannelRoutes([NullChannel(name) for name in channels], by_agent)


async def test_a_named_agent_has_only_its_own_channels() -> None:
    channels = [NullChannel("a"), NullChannel("b")]
    routes = ChannelRoutes(channels, {"*": ("a",), "nova": ("b",), "quiet": ()})
    assert (routes.of("nova"), routes.of("quiet"), routes.of("other"), routes.of(None)) == (("b",), (), ("a",), ("a",))
    assert ChannelRoutes(channels, {"nova": ("b",)}).of("other") == ()
    await routes.close()
    assert all(channel.closed for channel in channels)
