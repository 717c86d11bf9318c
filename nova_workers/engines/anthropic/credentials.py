"""The process's API clients: one per credential profile."""

from collections.abc import Sequence

from anthropic import AsyncAnthropic, CredentialsError

from nova_workers.base.errors import ConfigurationError
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.http.connections import Connections


class Clients:
    """The clients of a process."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        connections: Connections,
        *,
        base_url: str | None,
    ) -> None:
        """Create the clients.

        Raises:
            ConfigurationError: The environment names credentials that cannot be read, or two profiles have one name.
        """
        names = [profile.name for profile in profiles]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"Two credential profiles of the model provider have the same name: {names!r}.")
        try:
            self._clients = {
                profile.name: AsyncAnthropic(
                    api_key=profile.api_key,
                    base_url=profile.base_url or base_url,
                    timeout=connections.timeout,
                    # Retries are decided in one place: `nova_workers.engines.resilience`.
                    max_retries=0,
                    http_client=connections.http,
                    # Spans of model calls are those of the turn, the same for all engines.
                    open_telemetry=False,
                )
                for profile in profiles
            }
        except CredentialsError as error:
            raise ConfigurationError(f"The anthropic SDK cannot read its credentials: {error}") from error

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the profiles, in order of preference."""
        return tuple(self._clients)

    def of(self, profile: str) -> AsyncAnthropic:
        """Return the client of a profile."""
        return self._clients[profile]
