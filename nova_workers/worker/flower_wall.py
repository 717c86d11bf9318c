"""What Flower has no option for: its password before its metrics too, and a check of the host.

Flower asks for the password in most handlers by themselves; its metrics, which name workers and tasks, are served to
everyone who reaches the port.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Iterable
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler

from nova_workers.base.http_server.allowed_hosts import AllowedHosts

_OPEN = ("/healthcheck", "/static/")
"""Constant answers: of a probe, and files of the package."""


class _Refusal(RequestHandler):
    """Answers with a status and nothing else."""

    def initialize(self, status: int) -> None:
        """Take the status."""
        self._status = status

    def prepare(self) -> None:
        """Answer, whatever the method."""
        self.set_status(self._status)
        if self._status == 401:
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        self.finish()


def stand_before_flower(credentials: str, hosts: Iterable[str]) -> None:
    """Refuse requests for other hosts, and those without the password, whatever handler they are for.

    Args:
        credentials: User and password, with a colon between.
        hosts: The names that Flower answers to, beside those of loopback and addresses.
    """
    # Each application of this process is Flower's.
    allowed, find_handler = AllowedHosts(hosts), Application.find_handler

    def find_or_refuse(self: Application, request: HTTPServerRequest, **kwargs: Any) -> Any:
        status = None
        if not all(host in allowed for host in request.headers.get_list("Host")):
            status = 421
        elif not request.path.startswith(_OPEN) and not _knows(request, credentials):
            status = 401
        if status is None:
            return find_handler(self, request, **kwargs)
        return self.get_handler_delegate(request, _Refusal, {"status": status})

    Application.find_handler = find_or_refuse


def _knows(request: HTTPServerRequest, credentials: str) -> bool:
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    try:
        given = b64decode(sent.strip(), validate=True)
    except ValueError:
        return False
    return scheme == "Basic" and hmac.compare_digest(given, credentials.encode())
