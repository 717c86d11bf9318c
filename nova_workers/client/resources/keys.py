# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/keys``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.keys import KeyCreate, KeyCreated, KeyRotate, KeyView, SignInView


class Keys:
    """``/v1/keys``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[KeyView]:
        """Return a page of the tenant's keys, without their secrets."""
        return await self._transport.fetch(Page[KeyView], "GET", "/v1/keys", params={"limit": limit, "cursor": cursor})

    async def create(self, key: KeyCreate) -> KeyCreated:
        """Create a key. Its secret is in this answer only."""
        return await self._transport.fetch(KeyCreated, "POST", "/v1/keys", body=key)

    async def sign_ins(self, *, limit: int | None = None, cursor: str | None = None) -> Page[SignInView]:
        """Return a page of the sessions of people that go on, newest first."""
        return await self._transport.fetch(
            Page[SignInView], "GET", "/v1/sign-ins", params={"limit": limit, "cursor": cursor}
        )

    async def rotate(self, key_id: str, rotation: KeyRotate) -> KeyCreated:
        """Replace a key by a successor, whose secret is in this answer only. The key itself ends after an overlap."""
        return await self._transport.fetch(KeyCreated, "POST", f"/v1/keys/{key_id}/rotate", body=rotation)

    async def revoke(self, key_id: str) -> None:
        """Revoke a key. API processes refuse it within seconds."""
        await self._transport.send("DELETE", f"/v1/keys/{key_id}")
