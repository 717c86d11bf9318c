# Generated from nova_workers/client/resources/keys.py by `make format`: change that file instead.
"""``/v1/keys``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.keys import KeyCreate, KeyCreated, KeyRotate, KeyView, SignInView


class Keys:
    """``/v1/keys``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[KeyView]:
        """Return a page of the tenant's keys, without their secrets."""
        return self._transport.fetch(Page[KeyView], "GET", "/v1/keys", params={"limit": limit, "cursor": cursor})

    def create(self, key: KeyCreate) -> KeyCreated:
        """Create a key. Its secret is in this answer only."""
        return self._transport.fetch(KeyCreated, "POST", "/v1/keys", body=key)

    def sign_ins(self, *, limit: int | None = None, cursor: str | None = None) -> Page[SignInView]:
        """Return a page of the sessions of people that go on, newest first."""
        return self._transport.fetch(Page[SignInView], "GET", "/v1/sign-ins", params={"limit": limit, "cursor": cursor})

    def rotate(self, key_id: str, rotation: KeyRotate) -> KeyCreated:
        """Replace a key by a successor, whose secret is in this answer only. The key itself ends after an overlap."""
        return self._transport.fetch(KeyCreated, "POST", f"/v1/keys/{key_id}/rotate", body=rotation)

    def revoke(self, key_id: str) -> None:
        """Revoke a key. API processes refuse it within seconds."""
        self._transport.send("DELETE", f"/v1/keys/{key_id}")
