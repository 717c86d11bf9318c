"""The HTTP contract of pairings: a person in a channel asks to write, and an operator confirms it by a code."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StrictBool

from nova_workers.contracts.bodies import Body, Name, View

CODE_CHARS = 8


class PairingRequest(Body):
    """A channel's question whether a person may write, who is on no list of its own."""

    channel: Name
    """The channel's name, as its threads have it."""
    sender: Name
    """The person's id in the channel, which the channel has verified."""
    name: Name | None = None
    """What the person calls itself there, for the operator."""
    ask: StrictBool = True
    """Whether to make a code if the person may not write. Without it nothing is stored."""


class PairingAnswer(View):
    """Whether the person may write."""

    paired: bool
    code: str | None = None
    """A new code, for the person to pass on to the operator; null if one that was given before is still valid."""
    code_expires_at: datetime | None = None


class PairingConfirm(Body):
    """The code that a person has passed on."""

    code: Annotated[Name, Field(max_length=40)]
    """Case, spaces and dashes do not matter."""


class PairingView(View):
    """A person who asks to write to a channel, or may."""

    id: str
    channel: str
    sender: str
    name: str
    asked_at: datetime
    code_expires_at: datetime
    paired_at: datetime | None
    """When it was confirmed; null while it is only asked for."""
