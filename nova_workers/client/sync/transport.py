# Generated from nova_workers/client/transport.py by `make format`: change that file instead.
"""Requests to the API: one HTTP connection pool, retries of harmless requests, errors of `nova_workers.base.errors`.

Below is `httpx2`; nothing above this module sees it.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from datetime import datetime
from typing import Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import Unauthenticated, Unavailable
from nova_workers.client.problems import error_of_response, error_of_transport, unknown_answer
from nova_workers.client.retry import Attempts, Retry
from nova_workers.client.sync.connection import Http, chunks_of, sleep
from nova_workers.client.tls import tls_context

EventSource = httpx2.EventSource
"""An open stream of server-sent events."""

Params = Mapping[str, str | float | datetime | Sequence[str] | None]
"""Query parameters; None leaves one out, a sequence repeats it."""

M = TypeVar("M", bound=BaseModel)

_KEY = "Idempotency-Key"
_REPEATABLE_METHODS = frozenset({"GET", "PUT", "DELETE"})


class Transport:
    """Sends requests with the key, and turns every failure into an error of `nova_workers.base.errors`."""

    def __init__(
        self, base_url: str, api_key: str | None, *, timeout_s: float = 30.0, retry: Retry | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.retry = retry or Retry()
        self._authorization = _authorization(api_key)
        self._timeout_s = timeout_s
        self._http = Http(
            base_url=self.base_url,
            headers={"User-Agent": "nova-workers-client"},
            timeout=timeout_s,
            verify=tls_context(self.base_url),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        )

    def with_key(self, api_key: str | None, *, forwarded_for: str | None = None, session_id: str | None = None) -> Self:
        """Return a transport with another key, and the address that it sends for, on the same connections.

        Closing either one closes both.

        Raises:
            Unauthenticated: No key has this form.
        """
        other = copy(self)
        other._authorization = _authorization(api_key)
        if forwarded_for is not None:
            other._authorization["X-Forwarded-For"] = forwarded_for
        if session_id is not None:
            other._authorization["Nova-Session"] = session_id
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def fetch(
        self,
        model: type[M],
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        repeatable: bool = False,
    ) -> M:
        """Send a request and return its body as `model`.

        Raises:
            NovaError: The API refused, or did not answer; see `nova_workers.client.problems`.
        """
        response = self.send(
            method, path, body=body, params=params, headers=headers, timeout_s=timeout_s, repeatable=repeatable
        )
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise unknown_answer(response, error) from error

    def send(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        accept: frozenset[int] = frozenset(),
        repeatable: bool = False,
    ) -> httpx2.Response:
        """Send a request and return its whole response, whose status is below 400 or one of `accept`.

        An idempotent request (by its method, with an Idempotency-Key, or `repeatable`: with keys in its body) is sent
        again if the connection broke or the API answered 503. After a refused connection it is not: the caller should
        know at once that there is no API, unless an earlier attempt may have been accepted. One that may have been
        carried out is sent again only with a key: a second DELETE, say, would be refused since the first one succeeded.

        Raises:
            NovaError: The API refused, or did not answer. `OutcomeUnknown` if the request may have been carried out;
                with a key it has the field `idempotency_key`, to repeat it later.
        """
        request = self._request(method, path, body=body, params=params, headers=headers, timeout_s=timeout_s)
        is_once = repeatable or _KEY in request.headers
        # A retry of a change whose answer was lost would find another version than it expects.
        repeatable = is_once or (method in _REPEATABLE_METHODS and "If-Match" not in request.headers)
        attempts = Attempts(
            self.retry, request.headers.get(_KEY), repeatable=repeatable, is_once=is_once or method == "GET"
        )
        while True:
            try:
                return self._send_once(request, accept)
            except Unavailable as error:
                sleep(attempts.fail(error))

    @contextmanager
    def listen(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float = 60.0,
    ) -> Generator[EventSource]:
        """Open a stream of server-sent events. A server that sends nothing for `silence_s` counts as unavailable.

        Raises:
            NovaError: The API refused, did not answer, or the connection broke while it was read.
        """
        sent = {"Accept": "text/event-stream", "Cache-Control": "no-store", **(headers or {})}
        request = self._request(method, path, params=params, body=body, headers=sent, timeout_s=silence_s)
        try:
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                    raise error_of_response(response)
                yield EventSource(response)
            finally:
                response.close()
        except httpx2.TransportError as error:
            key = request.headers.get(_KEY)
            raise error_of_transport(error, self.base_url, method=method, key=key) from error

    @contextmanager
    def download(
        self, path: str, *, accept: str, params: Params | None = None, silence_s: float = 60.0
    ) -> Generator[Generator[bytes]]:
        """Open an answer of any length, as a stream of chunks.

        Raises:
            NovaError: The API refused, did not answer, or the connection broke while it was read.
        """
        request = self._request("GET", path, params=params, headers={"Accept": accept}, timeout_s=silence_s)
        try:
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                    raise error_of_response(response)
                with closing(chunks_of(response)) as pieces:
                    yield pieces
            finally:
                response.close()
        except httpx2.TransportError as error:
            raise error_of_transport(error, self.base_url) from error

    def upload(
        self, path: str, pieces: Iterable[bytes], *, content_type: str, params: Params, silence_s: float = 600.0
    ) -> bytes:
        """Stream a request body of any length, and return the response's. Not retried.

        Raises:
            NovaError: The API refused, or did not answer.
        """
        request = self._http.build_request(
            "POST",
            path,
            content=pieces,
            params=_query(params),
            headers={"Content-Type": content_type, **self._authorization},
            timeout=httpx2.Timeout(self._timeout_s, read=silence_s, write=silence_s),
        )
        return (self._send_once(request, frozenset())).content

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx2.Request:
        sent = {**self._authorization, **(headers or {})}
        content: bytes | None = None
        if body is not None:
            # Unset fields are not sent: a PATCH changes only the fields it names.
            content = body.model_dump_json(exclude_unset=True).encode()
            sent["Content-Type"] = "application/json"
        timeout = httpx2.Timeout(self._timeout_s, read=timeout_s or self._timeout_s)
        return self._http.build_request(
            method, path, content=content, params=_query(params or {}) or None, headers=sent, timeout=timeout
        )

    def _send_once(self, request: httpx2.Request, accept: frozenset[int]) -> httpx2.Response:
        try:
            response = self._http.send(request)
        except httpx2.TransportError as error:
            key = request.headers.get(_KEY)
            raise error_of_transport(error, self.base_url, method=request.method, key=key) from error
        if response.is_error and response.status_code not in accept:
            raise error_of_response(response)
        return response


def _query(params: Params) -> dict[str, str | float | list[str]]:
    return {name: _in_query(value) for name, value in params.items() if value is not None}


def _in_query(value: str | float | datetime | Sequence[str]) -> str | float | list[str]:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else [*value]


def _authorization(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if re.fullmatch(r"[!-~]+", api_key) is None:
        raise Unauthenticated("The API key has characters that no key has: keys are printable ASCII without blanks.")
    return {"Authorization": f"Bearer {api_key}"}
