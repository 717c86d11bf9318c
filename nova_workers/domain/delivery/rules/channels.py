"""The delivery channels of each agent, built and resolved once at process start."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from nova_workers.base.entry_points import entry_points_of
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.requests import Outbound
from nova_workers.contracts.deliveries import INBOX
from nova_workers.contracts.ports import DeliveryChannel
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.ledger.database import Database

CHANNEL_GROUP = "nova_workers.channels"
"""The entry-point group of channels: each entry is a function from `ChannelParts` to a channel."""

WEBHOOKS = "webhooks"
"""The built-in channel. It has one lane per webhook; any other channel is one lane."""

PUSHES = "pushes"
"""Built in too, for the changes of single runs. It has some lanes per tenant, and is of no agent."""

EVERYONE = "*"


@dataclass(frozen=True, slots=True)
class ChannelParts:
    """What a channel may use.

    Attributes:
        outbound: Guarded requests to the public internet.
        secrets: Of the tenants: a bot's token is a named secret.
        database: For a channel with state of its own.
    """

    outbound: Outbound
    secrets: Secrets
    database: Database


class ChannelRoutes:
    """The channels of a process, and which agent has which."""

    def __init__(self, channels: Collection[DeliveryChannel], by_agent: Mapping[str, Sequence[str]]) -> None:
        """Resolve names to channels.

        Args:
            channels: The installed channels.
            by_agent: Names of channels by agent id; ``*`` is for all other agents.

        Raises:
            ConfigurationError: Two channels have the same name, or a name is unknown.
        """
        self._channels: dict[str, DeliveryChannel] = {}
        for channel in channels:
            if channel.name in self._channels:
                raise ConfigurationError(f"Two channels are called {channel.name!r}; rename one.")
            if channel.name == INBOX:
                raise ConfigurationError(f"A channel cannot be called {INBOX!r}: that is the inbox. Rename it.")
            self._channels[channel.name] = channel
        self._by_agent = {agent_id: tuple(names) for agent_id, names in by_agent.items()}
        for agent_id, names in self._by_agent.items():
            for name in names:
                if name not in self._channels:
                    raise ConfigurationError(
                        f"NOVA_DELIVERY__CHANNELS gives {agent_id!r} the channel {name!r}, which is not installed. "
                        f"There are {', '.join(sorted(self._channels))}."
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all channels."""
        return tuple(self._channels)

    def of(self, agent_id: str | None) -> tuple[str, ...]:
        """Return the names of an agent's channels; None means the fleet itself."""
        named = None if agent_id is None else self._by_agent.get(agent_id)
        return self._by_agent.get(EVERYONE, ()) if named is None else named

    def channel(self, name: str) -> DeliveryChannel:
        """Return a channel. It is one of `names`."""
        return self._channels[name]

    async def close(self) -> None:
        """Close every channel."""
        for channel in self._channels.values():
            await channel.close()


def load_channels(
    wanted: Collection[str], parts: ChannelParts, *, found: Collection[EntryPoint] | None = None
) -> list[DeliveryChannel]:
    """Build the installed channels that are in `wanted`; others are not imported.

    Args:
        wanted: Names of entry points.
        parts: Passed to each.
        found: The installed entry points; None finds them.

    Raises:
        ConfigurationError: One cannot be built; the message names it and the cause.
    """
    made: list[DeliveryChannel] = []
    for entry in entry_points_of(CHANNEL_GROUP) if found is None else found:
        if entry.name in wanted:
            make: Callable[[ChannelParts], DeliveryChannel] = _loaded(entry)
            made.append(make(parts))
    return made


def _loaded(entry: EntryPoint) -> Callable[[ChannelParts], DeliveryChannel]:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"The channel {entry.name!r} cannot be loaded from {entry.value!r}: {error}. Fix the package, or take the "
            "name out of NOVA_DELIVERY__CHANNELS."
        ) from error
