"""What ``cipher`` needs of its library. Imported by name, with the first value that is encrypted or decrypted."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["AESGCM", "InvalidTag"]
