"""Shadows: the candidate answers turns of the current version, too, and no person sees its answers.

A shadow is an evaluation that the conversations of its rollout feed: turns become examples of a dataset, with their
tool calls, and the candidate answers them by runs of the evaluation, in the background, with recorded results of tools.
The answer of the current version is that of the turn itself.
"""

from __future__ import annotations

from typing import Final

from nova_workers.base.errors import LimitExceeded, NotFound
from nova_workers.contracts.evaluators import Answered
from nova_workers.contracts.http.datasets import DatasetCreate, ExamplesFromRuns, RunSelection
from nova_workers.contracts.http.evaluations import MAX_TRIALS, EvaluationStart
from nova_workers.contracts.http.rollouts import RolloutShadow, RolloutView, ShadowView
from nova_workers.domain.datasets.rules.service import create_dataset, take_examples
from nova_workers.domain.evaluations import sql as evaluations
from nova_workers.domain.evaluations.rules.service import check_versions, new_evaluation_id
from nova_workers.domain.rollouts.sql import records as ledger
from nova_workers.domain.rollouts.sql.shadows import choose_runs
from nova_workers.ledger.database import Connection

_PER_SWEEP: Final = 20
_MOST_WAITING: Final = 40
"""While so many turns wait for the candidate's answer, none is added: the shadow is a sample."""


async def begin_shadow(
    transaction: Connection, tenant_id: str, rollout: RolloutView, shadow: RolloutShadow, *, default_engine: str
) -> RolloutView:
    """Give a rollout that this transaction began its shadow, without turns.

    Raises:
        InvalidInput: The engine of a version cannot replay tool calls.
        LimitExceeded: The tenant has the most datasets.
    """
    name = f"shadow-{rollout.id.lower().replace('_', '-')}"
    start = EvaluationStart(
        agent=rollout.agent_id,
        version=rollout.version,
        against=rollout.baseline_version,
        dataset=name,
        evaluators=(Answered(),),
        budget_usd=shadow.budget_usd,
    )
    await check_versions(transaction, tenant_id, start, default_engine)
    about = f"Turns of {rollout.agent_id} that version {rollout.version} answered in its shadow."
    dataset = await create_dataset(transaction, tenant_id, DatasetCreate(name=name, description=about))
    evaluation_id = new_evaluation_id()
    await evaluations.start_evaluation(
        transaction,
        tenant_id,
        evaluation_id,
        start,
        dataset_id=dataset.id,
        dataset_version=dataset.version,
        estimate_usd=None,
        trials=0,
        created_by=rollout.id,
        rollout_id=rollout.id,
    )
    view = ShadowView(percent=shadow.percent, budget_usd=shadow.budget_usd, evaluation=evaluation_id, dataset=name)
    return await ledger.set_shadow(transaction, tenant_id, rollout.id, view)


async def feed_shadow(transaction: Connection, tenant_id: str, rollout: RolloutView) -> int:
    """Let the candidate answer turns of the current version that ended since. Return how many."""
    shadow = rollout.shadow
    if shadow is None:
        return 0
    # It has ended if its budget is spent, and another process may move it forward at the moment.
    evaluation = await evaluations.lock_open(transaction, shadow.evaluation)
    if evaluation is None:
        return 0
    progress = await evaluations.read_progress(transaction, evaluation.id)
    if progress.pending >= _MOST_WAITING or evaluation.trials + 2 * _PER_SWEEP > MAX_TRIALS:
        return 0
    run_ids = await choose_runs(transaction, tenant_id, rollout, shadow, limit=_PER_SWEEP)
    if not run_ids:
        return 0
    taking = ExamplesFromRuns(runs=RunSelection(run_ids=run_ids), limit=len(run_ids))
    try:
        taken = await take_examples(transaction, tenant_id, shadow.dataset, taking)
    except (NotFound, LimitExceeded):
        # A person deleted the dataset, and with it the answers; or it has as many examples as it may have.
        return 0
    return await evaluations.feed_trials(
        transaction, tenant_id, evaluation, dataset=shadow.dataset, dataset_version=taken.version, run_ids=run_ids
    )
