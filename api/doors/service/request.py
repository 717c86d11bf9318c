"""The request that a door answers."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from ...auth import Caller
from ...state import ApiState


@dataclass(frozen=True, slots=True)
class DoorRequest:
    """One request of a door.

    Attributes:
        caller: Who makes the request. All that is read and written is of its tenant.
    """

    state: ApiState
    caller: Caller
    request: Request
