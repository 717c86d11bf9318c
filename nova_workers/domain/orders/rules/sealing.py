"""Encryption of orders at rest: each order has a key of its own, which exists only while the order is open.

The key is stored encrypted under a master key of the fleet (`secrets.rules.vault`). Destroying it at the end of the
order destroys the content of the order, prompts, drafts and critiques, wherever their ciphertexts still are. Order and
part are bound to each ciphertext as associated data.
"""

import hmac
import os
from base64 import b32encode, b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from nova_workers.base.cipher import Cipher, NotAuthentic
from nova_workers.base.errors import Conflict
from nova_workers.domain.orders.rules.checking.known_secrets import KnownSecrets
from nova_workers.domain.secrets.rules.vault import Sealed, Vault

_KEY_BYTES: Final = 32
_CANARY_BYTES: Final = 15


class OrderSeal:
    """Encrypts and fingerprints what belongs to one order."""

    def __init__(self, order_id: str, key: bytes) -> None:
        self._order_id = order_id
        self._cipher = Cipher(key)
        # Of its own, so that no value is both a key of the cipher and of fingerprints.
        self._mark_key = hmac.digest(key, b"nova.order.fingerprint.v1", "sha256")

    def seal(self, place: str, content: bytes) -> bytes:
        """Encrypt content for a place within the order, such as the id of a part."""
        return self._cipher.seal(content, self._bound(place))

    def open(self, place: str, sealed: bytes) -> bytes:
        """Decrypt the content of a place.

        Raises:
            Conflict: It was changed, or made for another order or place.
        """
        try:
            return self._cipher.open(sealed, self._bound(place))
        except NotAuthentic:
            raise Conflict(
                f"The content of work order {self._order_id!r} cannot be decrypted: its row was changed.",
                order_id=self._order_id,
            ) from None

    def fingerprint(self, content: str | bytes) -> str:
        """Return an HMAC of content. After the end of the order, nothing can be compared with it."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        return "hmac-sha256:" + hmac.digest(self._mark_key, data, "sha256").hex()

    @property
    def canary(self) -> str:
        """The mark of the order's prompts: an answer that contains it repeats a prompt. Equal for all of its parts."""
        return b32encode(hmac.digest(self._mark_key, b"nova.order.canary.v1", "sha256")[:_CANARY_BYTES]).decode()

    def _bound(self, place: str) -> bytes:
        return b"\0".join((b"nova.order.v1", self._order_id.encode(), place.encode()))


class OrderKeys:
    """Makes and opens the keys of orders. `known_secrets` has what no result may contain."""

    def __init__(self, vault: Vault, fleet_secrets: Mapping[str, str] | None = None) -> None:
        """Store the parts.

        Args:
            vault: Has the master keys.
            fleet_secrets: Secrets of the fleet's own settings, by name.
        """
        self._vault = vault
        self.known_secrets = KnownSecrets(vault, fleet_secrets or {})

    def make(self, tenant_id: str, order_id: str) -> tuple[OrderSeal, Sealed]:
        """Return the seal of a new order, and its key as it is stored.

        Raises:
            Conflict: There is no master key.
        """
        key = os.urandom(_KEY_BYTES)
        wrapped = self._vault.seal(tenant_id, key_place(order_id), b64encode(key).decode())
        return OrderSeal(order_id, key), wrapped

    def open(self, tenant_id: str, order_id: str, key_id: str | None, data_key: bytes | None) -> OrderSeal:
        """Return the seal of an open order.

        Raises:
            Conflict: The order has ended, or this process lacks the master key.
        """
        if key_id is None or data_key is None:
            raise Conflict(f"Work order {order_id!r} has ended; its content was destroyed.", order_id=order_id)
        encoded = self._vault.open(tenant_id, key_place(order_id), Sealed(key_id, data_key))
        return OrderSeal(order_id, b64decode(encoded))


def key_place(order_id: str) -> str:
    """Return the name of an order's key in the vault."""
    return f"work order {order_id}"
