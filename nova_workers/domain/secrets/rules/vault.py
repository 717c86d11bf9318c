"""Encryption of secrets at rest, under master keys that are not in the database.

Tenant and name are bound to each ciphertext as associated data, so that a row moved to another name or tenant cannot be
decrypted there.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nova_workers.base.cipher import Cipher, NotAuthentic
from nova_workers.base.errors import ConfigurationError, Conflict
from nova_workers.base.master_keys import FixedKeys, MasterKeySource

_NO_KEYS: Final = (
    "This fleet keeps no secrets: it has no master key. The operator sets NOVA_SECRETS__KEYS for the API and the "
    "workers; `nova up` makes a key by itself."
)


class Sealed(NamedTuple):
    """A ciphertext, and the id of its master key."""

    key_id: str
    ciphertext: bytes


class Vault:
    """Encrypts with the current master key, and decrypts with any that it has. Without keys it refuses both."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """Keep the master keys, each an id and 32 bytes; the first is the current one."""
        self._source: MasterKeySource = FixedKeys(())
        self._texts = self._source.texts()
        self._use(keys)

    @classmethod
    def of(cls, source: MasterKeySource) -> "Vault":
        """Return a vault with the keys of a source, as they are from time to time.

        Raises:
            ConfigurationError: They cannot be read.
        """
        vault = cls(())
        vault._source = source
        vault._look()
        return vault

    async def refresh(self) -> None:
        """Read the master keys again: those that encrypt from now on may be others.

        Raises:
            Conflict: They cannot be read; those that were read before stay.
        """
        try:
            await self._source.refresh()
        except ConfigurationError as error:
            raise Conflict(error.message) from error

    @property
    def current_key_id(self) -> str:
        """Return the id of the key that encrypts.

        Raises:
            Conflict: There is no master key.
        """
        self._look()
        if self._current_id is None:
            raise Conflict(_NO_KEYS, setting="NOVA_SECRETS__KEYS")
        return self._current_id

    def _look(self) -> None:
        """Use the keys of the source, if they are others."""
        texts = self._source.texts()
        if texts is not self._texts:
            pairs = (text.partition(":") for text in texts)
            self._use([(key_id, b64decode(encoded)) for key_id, _, encoded in pairs])
            self._texts = texts

    def _use(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self._current_id = keys[0][0] if keys else None
        self._ciphers: Mapping[str, Cipher] = {key_id: Cipher(key) for key_id, key in keys}

    @property
    def missing(self) -> str | None:
        """Why it can encrypt nothing: there is no master key. None if there is one."""
        return _NO_KEYS if self._current_id is None else None

    def seal(self, tenant_id: str, name: str, value: str) -> Sealed:
        """Encrypt a value for one name of a tenant.

        Raises:
            Conflict: There is no master key.
        """
        key_id = self.current_key_id
        return Sealed(key_id, self._ciphers[key_id].seal(value.encode(), _place(tenant_id, name)))

    def open(self, tenant_id: str, name: str, sealed: Sealed) -> str:
        """Decrypt a ciphertext of this name and tenant.

        Raises:
            Conflict: The key is missing, or the ciphertext was made for another name or tenant, or changed.
        """
        self._look()
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            self._source.refresh_soon()
            # Without any key the message states that.
            current = self.current_key_id
            raise Conflict(
                f"The secret {name!r} is encrypted with the master key {sealed.key_id!r}, which this process does not "
                f"have (its current one is {current!r}). The operator adds it to the end of NOVA_SECRETS__KEYS.",
                key_id=sealed.key_id,
            )
        try:
            return cipher.open(sealed.ciphertext, _place(tenant_id, name)).decode()
        except NotAuthentic:
            raise Conflict(
                f"The secret {name!r} cannot be opened: its row was changed, or the key {sealed.key_id!r} is not the "
                "one that it was encrypted with. Set the secret again.",
                key_id=sealed.key_id,
            ) from None


def _place(tenant_id: str, name: str) -> bytes:
    """Return the associated data that binds a ciphertext to its row. Neither part can contain the NUL between them."""
    return b"\0".join((b"nova.secret.v1", tenant_id.encode(), name.encode()))
