"""The cipher of what is encrypted at rest: AES-256-GCM, with each ciphertext bound to its place."""

import os
from functools import cached_property
from importlib import import_module
from typing import Any, Final

_FORMAT: Final = b"\x01"
"""The first byte of a ciphertext: the nonce, then the encrypted content with its tag, follow."""
_NONCE_BYTES: Final = 12

_LIBRARY: Final = "nova_workers.base.aes_gcm"
"""Imported by name with the first ciphertext. It has an OpenSSL of its own: 7 MB, and 20 ms to import."""


class NotAuthentic(Exception):
    """A ciphertext was changed, or made with another key or for another place."""


class Cipher:
    """Encrypts and decrypts with one key, of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, content: bytes, place: bytes) -> bytes:
        """Encrypt content, bound to its place."""
        # 96 random bits allow 2^32 writes under one key; rotate before that.
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + nonce + self._aead.encrypt(nonce, content, place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Decrypt what was sealed for this place.

        Raises:
            NotAuthentic: It was not, or it was changed.
        """
        head, body = sealed[: 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        if head[:1] != _FORMAT or len(head) <= _NONCE_BYTES:
            raise NotAuthentic
        try:
            return self._aead.decrypt(head[1:], body, place)
        except self._library.InvalidTag:
            raise NotAuthentic from None

    @cached_property
    def _library(self) -> Any:
        return import_module(_LIBRARY)

    @cached_property
    def _aead(self) -> Any:
        return self._library.AESGCM(self._key)
