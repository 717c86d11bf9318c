"""Signatures of the Standard Webhooks specification, and their secrets.

The message's id, the time of the attempt and the body are signed, so that a receiver can detect forged, old and
repeated messages.
"""

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime

_PREFIX = "whsec_"
_SECRET_BYTES = 32
"""The size, of the 24 to 64 that the specification allows; the hash is no longer."""


def new_secret() -> str:
    """Return a fresh secret: ``whsec_`` and Base64."""
    return _PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


def signed_headers(message_id: str, at: datetime, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Return the headers that go with a body.

    Args:
        message_id: The same in every attempt.
        at: The time of this attempt.
        body: The exact bytes that are sent.
        keys: The secrets that sign, in the form of `new_secret`. Without any, the headers have no signature.
    """
    stamp = str(int(at.timestamp()))
    signed = b".".join((message_id.encode(), stamp.encode(), body))
    headers = {"webhook-id": message_id, "webhook-timestamp": stamp}
    if keys:
        headers["webhook-signature"] = " ".join(f"v1,{_signature(key, signed)}" for key in keys)
    return headers


def _signature(key: str, signed: bytes) -> str:
    return b64encode(hmac.digest(b64decode(key.removeprefix(_PREFIX)), signed, "sha256")).decode("ascii")
