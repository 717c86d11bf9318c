"""Starts and cancels evaluations. The tick of the workers moves them forward (`tick`)."""

from __future__ import annotations

from nova_workers.base.errors import Conflict, InvalidInput, LimitExceeded, existing, missing, too_many
from nova_workers.base.ids import new_id
from nova_workers.contracts.evaluators import Function
from nova_workers.contracts.http.evaluations import (
    MAX_OPEN_EVALUATIONS,
    MAX_TRIALS,
    EvaluationStart,
    EvaluationStarted,
    EvaluationView,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.datasets.rules.service import version_of
from nova_workers.domain.evaluations import sql as ledger
from nova_workers.domain.evaluations.rules.closing import end_evaluation
from nova_workers.domain.evaluations.rules.judging import ask_about_rated, estimate_judges_usd
from nova_workers.domain.evaluations.rules.replay import REPLAYING_ENGINES
from nova_workers.domain.runs.sql.installs import have_evaluators
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work


async def plan_evaluation(
    transaction: Connection,
    tenant_id: str,
    start: EvaluationStart,
    *,
    default_engine: str,
    created_by: str,
    evaluation_id: str | None,
) -> EvaluationStarted:
    """Estimate an evaluation, and add it with its trials unless it is a dry run.

    Args:
        transaction: In which it is added.
        start: What to evaluate.
        default_engine: Of agents that name none.
        created_by: The key of the request, or the person of its session.
        evaluation_id: Its id; None estimates only.

    Raises:
        NotFound: There is no such agent, version, dataset or version of it.
        AgentRenamed: The agent has another id now.
        InvalidInput: A version has an engine that cannot replay tool calls, no example fits, or no worker has an
            evaluator in Python.
        LimitExceeded: It has too many trials, is estimated above its budget, or too many are open.
    """
    await check_versions(transaction, tenant_id, start, default_engine)
    await _check_functions(transaction, start)
    dataset, version = await version_of(transaction, tenant_id, start.dataset, start.dataset_version)
    examples = await ledger.count_examples(transaction, tenant_id, dataset.id, version, start)
    if not examples:
        raise InvalidInput(
            f"Version {version} of dataset {start.dataset!r} has no such examples. Add some, or choose another split.",
            field="dataset",
            status=422,
        )
    trials = examples * start.repeats * (1 if start.against is None else 2)
    if trials > MAX_TRIALS:
        raise LimitExceeded(
            f"This evaluation would have {trials:,} answers, and at most {MAX_TRIALS:,} are possible. Choose a split "
            "or tags, or repeat less often.",
            limit=MAX_TRIALS,
        )
    mean_usd = await ledger.mean_cost_usd(transaction, tenant_id, start.agent)
    which = ledger.which_examples(tenant_id, dataset.id, version, start)
    judges_usd = await estimate_judges_usd(
        transaction, which, start.evaluators, answers=trials, pairs=examples * start.repeats
    )
    estimate = None if mean_usd is None else mean_usd * trials + (judges_usd or 0.0)
    if start.budget_usd is not None and estimate is not None and estimate > start.budget_usd:
        judged = "" if judges_usd is None else f", and {judges_usd:.6f} USD for judges"
        raise LimitExceeded(
            f"This evaluation is estimated at {estimate:.4f} USD, above its budget of {start.budget_usd:g} USD: "
            f"{trials:,} answers at {mean_usd:.6f} USD{judged}. Choose fewer examples, or a larger budget.",
            limit=start.budget_usd,
        )
    if evaluation_id is not None:
        if await ledger.count_open(transaction, tenant_id) >= MAX_OPEN_EVALUATIONS:
            raise too_many(MAX_OPEN_EVALUATIONS, "running evaluations", "Wait until one has ended, or cancel one.")
        await ledger.start_evaluation(
            transaction,
            tenant_id,
            evaluation_id,
            start,
            dataset_id=dataset.id,
            dataset_version=version,
            estimate_usd=estimate,
            trials=trials,
            created_by=created_by,
        )
        await ask_about_rated(transaction, evaluation_id, which, start.evaluators)
    return EvaluationStarted(id=evaluation_id, trials=trials, estimate_usd=estimate)


def new_evaluation_id() -> str:
    """Return the id of a new evaluation."""
    return new_id("evl")


async def cancel_evaluation(work: Work, tenant_id: str, evaluation_id: str) -> EvaluationView:
    """Cancel an evaluation and its runs; its result has what was judged. One that has ended stays as it is.

    Raises:
        NotFound: There is no such evaluation.
    """
    async with work.begin() as tx:
        # Waits for a process that moves it forward.
        if await ledger.lock_own(tx.connection, tenant_id, evaluation_id):
            evaluation = await ledger.lock_open(tx.connection, evaluation_id)
            if evaluation is not None:
                await end_evaluation(tx, evaluation, "canceled")
        found = await ledger.find_evaluation(tx.connection, tenant_id, evaluation_id)
    return existing(found, "evaluation", evaluation_id)


async def delete_evaluation(connection: Connection, tenant_id: str, evaluation_id: str) -> None:
    """Delete an evaluation with its answers.

    Raises:
        NotFound: There is no such evaluation.
        Conflict: It is running.
    """
    if await ledger.delete_evaluation(connection, tenant_id, evaluation_id):
        return
    if await ledger.find_evaluation(connection, tenant_id, evaluation_id) is None:
        raise missing("evaluation", evaluation_id)
    raise Conflict(f"Evaluation {evaluation_id!r} is running. Cancel it first.", status="running")


async def _check_functions(connection: Connection, start: EvaluationStart) -> None:
    functions = [each.function for each in start.evaluators if isinstance(each, Function)]
    if functions and not await have_evaluators(connection, functions):
        raise InvalidInput(
            f"No live worker has all of these evaluators in Python: {', '.join(functions)}. Install their project on "
            "one, or correct the names.",
            field="evaluators",
            status=422,
        )


async def check_versions(connection: Connection, tenant_id: str, start: EvaluationStart, default_engine: str) -> None:
    """Refuse versions that cannot be evaluated.

    Raises:
        NotFound: There is no such agent or version.
        AgentRenamed: The agent has another id now.
        InvalidInput: A version has an engine that cannot replay tool calls.
    """
    wanted = [start.version, *([] if start.against is None else [start.against])]
    specs = await ledger.read_specs(connection, tenant_id, start.agent, wanted)
    if not specs:
        await refuse_former_id(connection, tenant_id, start.agent)
        if not await ledger.has_agent(connection, tenant_id, start.agent):
            raise missing("agent", start.agent, field="agent")
    for version in wanted:
        if version not in specs:
            raise missing("agent_version", version, f"Agent {start.agent!r} has had no such version.")
        engine = specs[version].get("engine") or default_engine
        if engine not in REPLAYING_ENGINES:
            raise InvalidInput(
                f"Version {version} of agent {start.agent!r} has the engine {engine!r}, which runs tools of its own: "
                f"they cannot be replayed. Evaluate versions with one of {', '.join(sorted(REPLAYING_ENGINES))}.",
                field="version",
                status=422,
            )
