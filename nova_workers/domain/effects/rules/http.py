"""Embeddings from a server: any with ``POST /v1/embeddings``, which most vendors and local servers have."""

import math
from collections.abc import Sequence
from typing import Any

import httpx2

from nova_workers.base.errors import ConfigurationError, InvalidInput, Unavailable
from nova_workers.base.observability.addresses import bare_address
from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.domain.effects.rules.provider import Vector


class HttpEmbeddings:
    """A client of one server and one of its models."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Set up the client; nothing is sent.

        Args:
            base_url: Where ``/v1/embeddings`` is, without it.
            model: As the server names it.
            api_key: Sent as a bearer token.
            timeout_s: Most time of a request.
            transport: In place of the network; for tests.
        """
        self.model = model
        self._url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/embeddings"
        self._shown = bare_address(self._url)
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=timeout_s, transport=transport, limits=httpx2.Limits(max_connections=8)
        )
        bound_responses(self._client, ResponseBounds(total_s=timeout_s))

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector a text, in one request. See `EmbeddingProvider.embed`."""
        if not texts:
            return []
        request = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        try:
            response = await self._client.post(self._url, json=request)
        except httpx2.TransportError as error:
            raise Unavailable(
                f"The embedding server at {self._shown!r} did not answer ({type(error).__name__}: {error}).",
                server="embeddings",
            ) from error
        self._check(response)
        return self._vectors(response, len(texts))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status < 300:
            return
        failure = f"{status}: {response.text[:300]}"
        if status in {401, 403, 404}:
            raise ConfigurationError(
                f"The embedding server at {self._shown!r} refused the request with {failure}. Check "
                "NOVA_EFFECTS__EMBEDDING_API_KEY, NOVA_EFFECTS__EMBEDDING_BASE_URL and NOVA_EFFECTS__EMBEDDING_MODEL.",
                status=status,
            )
        if status in {400, 413, 422}:
            raise InvalidInput(f"The embedding server refused a text with {failure}.", field="text", status=status)
        raise Unavailable(
            f"The embedding server at {self._shown!r} answered {failure}.",
            server="embeddings",
            status=status,
        )

    def _vectors(self, response: httpx2.Response, count: int) -> list[Vector]:
        try:
            data: list[dict[str, Any]] = sorted(response.json()["data"], key=lambda item: int(item["index"]))
            vectors: list[Vector] = [[float(number) for number in item["embedding"]] for item in data]
        except (ValueError, TypeError, KeyError) as error:
            raise Unavailable(
                f"The embedding server at {self._shown!r} did not answer with a list of vectors "
                f"({type(error).__name__}: {error}).",
                server="embeddings",
            ) from error
        if not all(math.isfinite(number) for vector in vectors for number in vector):
            raise Unavailable(f"The embedding server at {self._shown!r} answered with a number that is not finite.")
        if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
            raise Unavailable(
                f"The embedding server gave {len(vectors)} vectors for {count} texts, or of different lengths."
            )
        return vectors
