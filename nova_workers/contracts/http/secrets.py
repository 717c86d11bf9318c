"""The HTTP contract of secrets. Values can be set, but never read."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from nova_workers.contracts.bodies import Body, View

SECRET_NAME_PATTERN = r"^[A-Z][A-Z0-9_]{0,63}$"  # noqa: S105 - a pattern of names
MAX_SECRET_BYTES = 65_536
MAX_DESCRIPTION_CHARS = 500

SecretName = Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]
"""Capital letters, digits and underscores, like an environment variable; unique within a tenant."""


class SecretPut(Body):
    """A secret's new value."""

    # Excluded from repr, so that it does not appear in tracebacks or logs.
    value: Annotated[str, Field(repr=False, min_length=1, max_length=MAX_SECRET_BYTES)]
    """6 characters to 64 KiB in UTF-8."""
    description: Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    """Its purpose, visible to agents. None keeps the current description."""


class SecretView(View):
    """A secret without its value."""

    name: str
    description: str
    key_id: str
    """The id of the master key that encrypts it."""
    updated_by: str
    """``person``, or the agent's id."""
    created_at: datetime
    updated_at: datetime


class SecretRotation(View):
    """The result of a rotation.

    Attributes:
        key_id: The current master key.
        rotated: How many secrets this call encrypted with the current key.
        remaining: How many still use other keys. If this is more than `unreadable`, another rotation is running or
            there are more secrets than one call processes; call again.
        unreadable: How many of those could not be decrypted.
    """

    key_id: str
    rotated: int
    remaining: int
    unreadable: int
