"""The start of an orchestration by an agent."""

from __future__ import annotations

from dataclasses import dataclass

ORCHESTRATIONS = "orchestrations"
"""The capability by which an agent starts orchestrations. Agents of an orchestration do not have it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The run whose agent starts an orchestration.

    Attributes:
        key: Names the tool call; a repeated call finds the orchestration that the first one started. None if the
            engine does not name calls.
        report_thread_id: The thread that gets a message when the orchestration ends; None reports to none.
    """

    run_id: str
    key: str | None = None
    report_thread_id: str | None = None
