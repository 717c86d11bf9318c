"""Where deliveries may go: to addresses of the public internet over TLS, and to hosts that the operator allows."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from nova_workers.base.errors import InvalidInput
from nova_workers.base.observability.addresses import bare_address


def check_delivery_url(url: str, *, allow_hosts: Collection[str]) -> None:
    """Refuse an address to which deliveries are not allowed. Each attempt checks what a host name resolves to.

    Args:
        url: The address.
        allow_hosts: ``host`` or ``host:port`` that need neither be public nor use TLS.

    Raises:
        InvalidInput: It is no URL, or not one of the public internet over TLS.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise InvalidInput("url: it is no address: its host or port cannot be used.", field="url") from error
    wrong = _wrong_form(url, parts, host)
    if wrong is None and not {host, f"{host}:{port}"} & set(allow_hosts):
        wrong = _not_public(parts, host)
    if wrong is not None:
        raise InvalidInput(f"url: {wrong}. Give one such as 'https://example.com/hooks/nova'.", field="url")


def _wrong_form(url: str, parts: SplitResult, host: str) -> str | None:
    if parts.scheme not in ("http", "https") or not host:
        return f"{bare_address(url)!r} is no http or https address"
    if parts.username is not None or parts.password is not None:
        return "an address with a user name or password is not called"
    if parts.fragment:
        return "an address with a fragment is not called"
    if any(char.isspace() or not char.isprintable() for char in url):
        return "an address has no spaces"
    return None


def _not_public(parts: SplitResult, host: str) -> str | None:
    if parts.scheme != "https":
        return "what agents do is sent over TLS only, and this address is not https"
    try:
        public = ip_address(host).is_global
    except ValueError:
        public = host != "localhost" and not host.endswith(".localhost")
    return None if public else f"{host!r} is not of the public internet"
