"""The service of doors, and what gives it to their routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ...auth import RunsCaller, SubmittingCaller
from ...state import state_of
from .agents import Agents
from .answering import Answering
from .following import Following
from .places import Places
from .pushes import Pushes
from .runs import Runs
from .threads import Threads


class Door(Following, Answering, Runs, Pushes, Threads, Agents, Places):
    """The service for one request of a door. Each base has one subject."""

    __slots__ = ()


async def _sending_door(request: Request, caller: SubmittingCaller) -> Door:
    return Door(state_of(request), caller, request)


async def _door(request: Request, caller: RunsCaller) -> Door:
    return Door(state_of(request), caller, request)


SendingDoor = Annotated[Door, Depends(_sending_door)]
"""The door of a route that submits, whose record is the run."""

AnyDoor = Annotated[Door, Depends(_door)]
"""The door of any other route: its changes are in the audit log."""
