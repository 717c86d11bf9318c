# Generated from nova_workers/client/resources/secrets.py by `make format`: change that file instead.
"""``/v1/secrets`` of the client."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.secrets import SecretPut, SecretRotation, SecretView


class Secrets:
    """``/v1/secrets``. Nothing returns a value."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[SecretView]:
        """Return a page of the tenant's secrets, by name."""
        return self._transport.fetch(Page[SecretView], "GET", "/v1/secrets", params={"limit": limit, "cursor": cursor})

    def put(self, name: str, secret: SecretPut) -> SecretView:
        """Create a secret, or replace its value."""
        return self._transport.fetch(SecretView, "PUT", f"/v1/secrets/{name}", body=secret)

    def delete(self, name: str) -> None:
        """Delete a secret; `NotFound` if there is none of this name."""
        self._transport.send("DELETE", f"/v1/secrets/{name}")

    def rotate(self) -> SecretRotation:
        """Encrypt again those secrets of all tenants that are not under the current master key."""
        return self._transport.fetch(SecretRotation, "POST", "/v1/fleet/secrets/rotate", timeout_s=300)
