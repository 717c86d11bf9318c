"""Steps and guardrails of rollouts as people write them: ``10%:6h:approval``, ``cost:0.2``."""

import re
from typing import Final

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import problem_of
from nova_workers.contracts.http.rollouts import RolloutStep

_STEP: Final = re.compile(
    r"(?P<percent>\d+(?:\.\d+)?) ?%(?::(?P<lasts>\d+(?:\.\d+)?)(?P<unit>[mhd])(?P<approval>:approval)?)?"
)
_HOURS: Final = {"m": 1 / 60, "h": 1, "d": 24}
_DAY_H: Final = 24


def parse_step(text: str) -> RolloutStep:
    """Return the step that ``10%``, ``10%:6h`` or ``10%:6h:approval`` says.

    Raises:
        InvalidInput: It is none of these forms, or its share or time is too large.
    """
    found = _STEP.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{text!r} is no step; write 10%, 10%:6h or 10%:6h:approval, with m, h or d.", field="steps")
    lasts = found["lasts"]
    hours = None if lasts is None else float(lasts) * _HOURS[found["unit"]]
    try:
        return RolloutStep(percent=float(found["percent"]), hours=hours, approval=found["approval"] is not None)
    except ValidationError as error:
        problem = problem_of(error.errors()[0], RolloutStep)
        raise InvalidInput(f"{text!r} is no step: {problem}.", field="steps") from error


def write_step(step: RolloutStep) -> str:
    """Return a step as `parse_step` reads it."""
    parts = [f"{step.percent:g}%"]
    if step.hours is not None:
        parts.append(_time(step.hours))
        parts += ["approval"] if step.approval else []
    return ":".join(parts)


def _time(hours: float) -> str:
    if hours >= _DAY_H and hours % _DAY_H == 0:
        return f"{hours / _DAY_H:g}d"
    return f"{hours:g}h" if hours >= 1 else f"{hours * 60:g}m"
