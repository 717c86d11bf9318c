"""The HTTP connections of an engine, which the clients of all its keys share."""

import httpx2

from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses

_CONNECT_TIMEOUT_S = 5.0


class Connections:
    """One connection pool. It connects at the first request, on that request's loop.

    Attributes:
        http: For the clients of an SDK. It follows redirects, as theirs do.
        timeout: Of each request.
    """

    def __init__(
        self, *, request_timeout_s: float, max_connections: int, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """Create the pool.

        Args:
            request_timeout_s: Longest pause in a response.
            max_connections: Limit of turns that stream concurrently.
            transport: Sends the requests; None uses the library's own.
        """
        self.timeout = httpx2.Timeout(request_timeout_s, connect=_CONNECT_TIMEOUT_S)
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self.http = httpx2.AsyncClient(timeout=self.timeout, limits=limits, transport=transport, follow_redirects=True)
        bound_responses(self.http, ResponseBounds.of_model(request_timeout_s))

    async def close(self) -> None:
        """Close the pool."""
        await self.http.aclose()
