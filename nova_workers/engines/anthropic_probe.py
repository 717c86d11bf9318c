"""Tries Anthropic with its keys, without its SDK, which is 70 MB that an idle worker does not need.

It sends the request that `AnthropicEngine.probe` has the SDK send: same address, key, proxies and certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx2

from nova_workers.base.errors import EngineFailure
from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.engines.http.probing import why_not_reached
from nova_workers.engines.verdicts import OUT_OF_ORDER, UNKNOWN, of_status

_URL: Final = "https://api.anthropic.com"
_VERSION: Final = "2026-10-21"
"""Of the API, as the SDK sends it (tested)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A credential profile for the provider.

    Attributes:
        name: Appears in logs, messages and metrics.
        api_key: None uses the SDK's environment variables.
        base_url: None uses the engine's.
    """

    name: str = "default"
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None


class AnthropicProbe:
    """Asks the provider for its list of models with each key. See `ProbedEngine.probe`."""

    def __init__(self, profiles: Iterable[Profile], base_url: str | None = None) -> None:
        """Take the keys. A profile without one, or credentials of another kind, need the SDK.

        Args:
            profiles: The keys.
            base_url: Of profiles that have none; None is the provider's own.
        """
        self._profiles = tuple(profiles)
        self._base_url = base_url
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, timeout_s: float) -> str | None:
        """Return why the provider cannot be used with any of the keys; None if it can."""
        if self._tls is None:
            # It reads the certificates of all authorities, which takes 20 ms.
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)
        async with httpx2.AsyncClient(verify=self._tls, timeout=timeout_s, follow_redirects=True) as client:
            bound_responses(client, ResponseBounds.of_model(timeout_s))
            requests = {profile.name: partial(self._list_models, client, profile) for profile in self._profiles}
            return await why_not_reached(requests, _failure_of, timeout_s=timeout_s)

    async def _list_models(self, client: httpx2.AsyncClient, profile: Profile) -> None:
        base_url = profile.base_url or self._base_url or _URL
        headers = {"Authorization": f"Bearer {profile.api_key}", "anthropic-version": _VERSION}
        response = await client.get(f"{base_url.rstrip('/')}/v1/models", params={"limit": 1}, headers=headers)
        if not response.is_success:
            raise _NotListed(response.status_code)


class _NotListed(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__(f"The model provider answered {status_code}.")
        self.status_code = status_code


def _failure_of(error: Exception) -> EngineFailure:
    match error:
        case _NotListed():
            return of_status(error.status_code).failure(str(error))
        case httpx2.RequestError():
            return OUT_OF_ORDER.failure(str(error))
        case _:
            return UNKNOWN.failure(str(error))
