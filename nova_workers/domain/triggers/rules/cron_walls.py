"""The wall times of a cron line. Imported by name, with the first line, for the library and what it imports."""

from collections.abc import Iterator
from datetime import datetime

from croniter import CroniterError, croniter

__all__ = ["CroniterError", "walls"]


def walls(line: str, after: datetime, *, either_day: bool) -> Iterator[datetime]:
    """Yield the wall times at which a line fires after another one.

    Args:
        line: With fields of plain values.
        after: Without a time zone, as what is yielded.
        either_day: Whether a day matches if it matches one of the two day fields.

    Raises:
        CroniterError: It is no line, or it never fires again.
    """
    found = croniter(line, after, ret_type=datetime, day_or=either_day)
    while True:
        yield found.get_next()
