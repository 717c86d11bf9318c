"""The process's API clients: one per provider and key."""

from collections.abc import Iterable
from dataclasses import dataclass

from openai import AsyncOpenAI

from nova_workers.engines.http.connections import Connections
from nova_workers.engines.openai.provider import OPENAI_URL, OpenAIProvider
from nova_workers.engines.verdicts import NO_KEY

_NO_KEY = "none"
"""The SDK requires a key; servers without authentication ignore it."""


@dataclass(frozen=True, slots=True)
class _Access:
    provider: OpenAIProvider
    client: AsyncOpenAI | None
    """None: OpenAI itself, without a key."""


class Clients:
    """The clients of a process, by profile: a provider's name, and with several keys also the key's name."""

    def __init__(self, providers: Iterable[OpenAIProvider], connections: Connections) -> None:
        """Create the clients."""
        self._connections = connections
        self._by_profile: dict[str, _Access] = {}
        self._profiles: dict[str, tuple[str, ...]] = {}
        for provider in providers:
            self._profiles[provider.name] = tuple(name for name, _ in provider.profiles)
            for name, key in provider.profiles:
                api_key = key.api_key or (None if provider.is_openai else _NO_KEY)
                client = self._client(provider, api_key) if api_key else None
                self._by_profile[name] = _Access(provider, client)

    def _client(self, provider: OpenAIProvider, api_key: str) -> AsyncOpenAI:
        client = AsyncOpenAI(
            api_key=api_key,
            base_url=provider.base_url or OPENAI_URL,
            timeout=self._connections.timeout,
            # Retries are decided in one place: `nova_workers.engines.resilience`.
            max_retries=0,
            default_headers=provider.headers,
            http_client=self._connections.http,
        )
        if not provider.is_openai:
            # The SDK takes them from the environment. They are for OpenAI, and no other server may get them.
            client.organization = client.project = client.admin_api_key = None
        return client

    def profiles(self, provider: OpenAIProvider) -> tuple[str, ...]:
        """Return the names of a provider's profiles, in order of preference."""
        return self._profiles[provider.name]

    def of(self, profile: str) -> AsyncOpenAI:
        """Return the client of a profile.

        Raises:
            AttemptFailed: It has no key.
        """
        access = self._by_profile[profile]
        if access.client is None:
            raise NO_KEY.failure(
                "There is no key for OpenAI. Set OPENAI_API_KEY, or an api_key in NOVA_OPENAI__PROVIDERS."
            )
        return access.client

    def secrets(self, profile: str) -> tuple[str, ...]:
        """Return the values that messages about a profile must not contain."""
        access = self._by_profile[profile]
        keys = (key.api_key for key in access.provider.keys)
        headers = (value for value in access.provider.headers.values())
        return tuple(value for value in (*keys, *headers) if value)
