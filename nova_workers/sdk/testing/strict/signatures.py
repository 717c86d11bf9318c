"""Signatures of thinking: a provider takes back only what it wrote itself, unchanged."""

import base64
import hashlib


def sign(thinking: str) -> str:
    """Return the signature of a thinking block's text."""
    return base64.b64encode(hashlib.sha256(b"thought" + thinking.encode("utf-8", "surrogatepass")).digest()).decode()
