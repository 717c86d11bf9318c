"""Addresses that clients name for the changes of one run."""

from __future__ import annotations

import binascii
from base64 import b64decode
from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import AfterValidator, StringConstraints, model_validator

from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable

SIGNING_PREFIX: Final = "whsec_"
"""How a secret of Standard Webhooks begins."""

_SIGNING_BYTES: Final = range(24, 65)


class PushConfigCreate(Body):
    """An address that gets the changes of a run. What it has of secrets is encrypted at rest, and never returned."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._~:@+=-]{1,128}$")]
    """Unique within the run."""
    url: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000), AfterValidator(storable)
    ]
    token: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,2000}$")] | None = None
    """Is sent with each request. One that is a secret of Standard Webhooks signs them instead."""
    scheme: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")] | None = None
    """The scheme of the header `Authorization`."""
    credentials: Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{1,8000}$")] | None = None

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        if (self.scheme is None) != (self.credentials is None):
            raise ValueError("authentication: it has a scheme and credentials, or neither")
        if self.token is not None and self.token.startswith(SIGNING_PREFIX) and not _signs(self.token):
            raise ValueError("token: a secret that signs is whsec_ and 24 to 64 bytes in Base64")
        return self


class PushConfigView(View):
    """An address that gets the changes of a run, without its secrets."""

    run_id: str
    name: str
    url: str
    created_at: datetime


def _signs(token: str) -> bool:
    try:
        return len(b64decode(token.removeprefix(SIGNING_PREFIX), validate=True)) in _SIGNING_BYTES
    except binascii.Error:
        return False
