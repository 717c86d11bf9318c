"""Secrets on the wire. Their values go in, and never come out."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from nova_workers.contracts.bodies import Body, View

__all__ = ["MAX_SECRET_BYTES", "SECRET_NAME_PATTERN", "SecretName", "SecretPut", "SecretRotation", "SecretView"]

SECRET_NAME_PATTERN = r"^[A-Z][A-Z0-9_]{0,63}$"  # noqa: S105 - a pattern of names
MAX_SECRET_BYTES = 65_536
MAX_DESCRIPTION_CHARS = 500

SecretName = Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]
"""Capital letters, digits and underscores, as an environment variable has them; unique within a tenant."""


class SecretPut(Body):
    """A secret's new value."""

    # Not in the representation, so that no traceback or log line shows it.
    value: Annotated[str, Field(repr=False, min_length=1, max_length=MAX_SECRET_BYTES)]
    """6 characters to 64 KiB in UTF-8."""
    description: Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    """What it is for; agents see it. None keeps what is there."""


class SecretView(View):
    """What may be known of a secret."""

    name: str
    description: str
    key_id: str
    """Which master key it is encrypted with."""
    updated_by: str
    """``person``, or the agent's id."""
    created_at: datetime
    updated_at: datetime


class SecretRotation(View):
    """What became of a rotation.

    Attributes:
        key_id: The current master key.
        rotated: How many secrets were encrypted anew by this call.
        remaining: How many are under other keys still. More than `unreadable`: another rotation works on them, or there
            are more than one call does; call again.
        unreadable: How many of those could not be opened.
    """

    key_id: str
    rotated: int
    remaining: int
    unreadable: int
