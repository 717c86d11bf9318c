"""Ends evaluations: cancels what still runs, and keeps what was found."""

from __future__ import annotations

import asyncio

from nova_workers.base.vocabulary import EvaluationStatus
from nova_workers.contracts.http.evaluations import VerdictView
from nova_workers.domain.evaluations import sql as ledger
from nova_workers.domain.evaluations.rules.judging import read_calibrations
from nova_workers.domain.evaluations.rules.results import JudgedTrial, result_of
from nova_workers.domain.evaluations.sql import OpenEvaluation
from nova_workers.domain.judges.sql import judgements
from nova_workers.domain.runs.sql.cancel import request_cancel
from nova_workers.ledger.work import UnitOfWork


async def end_evaluation(
    tx: UnitOfWork, evaluation: OpenEvaluation, status: EvaluationStatus, *, why: str | None = None
) -> None:
    """End an evaluation that this unit has locked. Answers that are not judged are left out of its result."""
    running = await ledger.running_runs(tx.connection, evaluation.id)
    running += await judgements.running_judges(tx.connection, evaluation.id)
    if running:
        tx.cancel(await request_cancel(tx.connection, evaluation.tenant_id, running))
    trials = [
        JudgedTrial(
            key=row["key"],
            arm=row["arm"],
            succeeded=row["outcome"] == "succeeded",
            verdicts=[VerdictView.model_validate(verdict) for verdict in row["verdicts"]],
            cost_usd=row["cost_usd"],
            seconds=row["seconds"],
        )
        for row in await ledger.read_scores(tx.connection, evaluation.id)
    ]
    # The intervals of many examples take a second of CPU.
    result = await asyncio.to_thread(
        result_of,
        evaluation.evaluators,
        trials,
        has_baseline=evaluation.against is not None,
        threshold=evaluation.threshold,
        calibrations=await read_calibrations(tx.connection, evaluation),
    )
    await judgements.drop_questions(tx.connection, evaluation.id)
    await ledger.close_evaluation(tx.connection, evaluation.tenant_id, evaluation.id, status, why=why, result=result)
