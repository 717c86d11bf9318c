"""The process's API clients: one per credential profile, all with one connection pool."""

from collections.abc import Sequence

import httpx2
from anthropic import AsyncAnthropic, CredentialsError, DefaultAsyncHttpxClient

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.engines.anthropic_probe import Profile

__all__ = ["Clients"]

_CONNECT_TIMEOUT_S = 5.0


class Clients:
    """The clients of a process."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        *,
        base_url: str | None,
        request_timeout_s: float,
        max_connections: int,
        trace_content: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Create the clients. They connect at their first request, on that request's loop.

        Raises:
            ConfigurationError: The environment names credentials that cannot be read, or two profiles have one name.
        """
        names = [profile.name for profile in profiles]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"Two credential profiles of the model provider have the same name: {names!r}.")
        timeout = httpx2.Timeout(request_timeout_s, connect=_CONNECT_TIMEOUT_S)
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._http = DefaultAsyncHttpxClient(timeout=timeout, limits=limits, transport=transport)
        bound_responses(self._http, ResponseBounds.of_model(request_timeout_s))
        try:
            self._clients = {
                profile.name: AsyncAnthropic(
                    api_key=profile.api_key,
                    base_url=profile.base_url or base_url,
                    timeout=timeout,
                    # Retries are decided in one place: `nova_workers.engines.resilience`.
                    max_retries=0,
                    http_client=self._http,
                    open_telemetry={"traces": {"content_mode": "content" if trace_content else "metadata_only"}},
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

    async def close(self) -> None:
        """Close the connection pool."""
        await self._http.aclose()
