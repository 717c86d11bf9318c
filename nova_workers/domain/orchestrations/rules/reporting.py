"""Reports the end of an orchestration to the thread whose agent started it and did not wait."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import storable, text_block
from nova_workers.contracts.orchestration import AgentDescriptor, AgentResult
from nova_workers.contracts.runs import Doorbell, Submission
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.orchestrations.sql.open_trees import find_report
from nova_workers.domain.runs.sql.submit import insert_run
from nova_workers.ledger.database import Connection

_MAX_TASK_CHARS = 500


async def queue_report(
    connection: Connection, tree: LockedTree, master: AgentDescriptor, result: AgentResult
) -> Doorbell | None:
    """Queue a message about the end of an orchestration, in the transaction that ends it; return its doorbell.

    None: no thread gets one, a run waits for the end, or the thread or its agent was deleted.
    """
    report = await find_report(connection, tree.id, master_run_id=master.run_id)
    if report is None:
        return None
    task = report.task if len(report.task) <= _MAX_TASK_CHARS else f"{report.task[:_MAX_TASK_CHARS]}…"
    lines = (
        f"Orchestration {tree.id}, which you started, {'is complete' if result.success else 'has failed'}.",
        f"Its task: {task}",
        "" if result.success else f"Error: {result.error_code or 'unknown'}: {result.error or ''}",
        result.summary,
    )
    submission = Submission(
        tree.tenant_id,
        (text_block(storable("\n\n".join(filter(None, lines)))),),
        thread_id=report.thread_id,
        queue=tree.queue,
        source="agent",
        metadata={**report.metadata, "orchestration_id": tree.id},
    )
    accepted = await insert_run(connection, submission, new_id("run"))
    return None if accepted is None else accepted.doorbell
