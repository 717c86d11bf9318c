"""What every door does: submit, follow, answer, cancel, items. It is all that a door calls."""

from .door import AnyDoor, Door, SendingDoor
from .runs import RecordedRun
from .submitting import Begun

__all__ = ["AnyDoor", "Begun", "Door", "RecordedRun", "SendingDoor"]
