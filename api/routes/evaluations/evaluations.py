"""``/v1/evaluations``: versions of an agent that answer the examples of a dataset."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.base.errors import existing, missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.datasets import DatasetName, ExampleKey
from nova_workers.contracts.http.evaluations import EvaluationStart, EvaluationStarted, EvaluationView, TrialView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.evaluations import sql as ledger
from nova_workers.domain.evaluations.rules import service as evaluations
from nova_workers.domain.evaluations.rules.judging import judges_of
from nova_workers.domain.idempotency.sql import once
from nova_workers.domain.judges.rules.asking import check_judge_engine, judge_spec
from nova_workers.ledger.database import Connection

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, EvaluationIdPath
from ...repeats import RepeatableRequest
from ...state import State

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"], route_class=StrictRoute)

_Dataset = Annotated[DatasetName | None, Query(description="Only those over this dataset.")]
_Key = Annotated[ExampleKey | None, Query(description="Only those to the example with this key.")]


@router.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def start_evaluation(
    body: EvaluationStart, caller: RunsCaller, state: State, repeats: RepeatableRequest
) -> EvaluationStarted:
    """Start an evaluation, or only estimate it. Its runs call no tools but those that are named as `live`."""
    key = repeats.bound_to(body)
    evaluation_id = None if body.dry_run else evaluations.new_evaluation_id()
    default_engine = state.services.settings.default_engine
    for judge in judges_of(body.evaluators).values():
        check_judge_engine(judge)
        await state.services.agents.check(caller.tenant_id, judge_spec(judge))

    async def plan(transaction: Connection, made_id: str | None) -> EvaluationStarted:
        return await evaluations.plan_evaluation(
            transaction,
            caller.tenant_id,
            body,
            default_engine=default_engine,
            created_by=caller.principal,
            evaluation_id=made_id,
        )

    async def find(transaction: Connection, made_id: str) -> EvaluationStarted:
        found = existing(await ledger.find_evaluation(transaction, caller.tenant_id, made_id), "evaluation", made_id)
        return EvaluationStarted(id=found.id, trials=found.trials, estimate_usd=found.estimate_usd)

    async def write() -> tuple[EvaluationStarted, bool]:
        async with state.services.database.transaction() as transaction:
            if evaluation_id is None:
                return await plan(transaction, None), False
            return await once(
                transaction,
                caller.tenant_id,
                key,
                lambda: plan(transaction, evaluation_id),
                lambda made_id: find(transaction, made_id),
                made_id=evaluation_id,
            )

    return await repeats.once("the evaluation", write)


@router.get("", responses=problems(400, 410, 422))
async def list_evaluations(
    *,
    caller: RunsReader,
    state: State,
    agent_id: AgentIdQuery = None,
    dataset: _Dataset = None,
    paging: PageQuery,
) -> Page[EvaluationView]:
    """List evaluations, newest first."""
    listing = paging.of(caller.tenant_id, "evaluations", str, agent_id, dataset)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await ledger.list_evaluations(
            connection, caller.tenant_id, agent_id=agent_id, dataset=dataset, before=listing.key, limit=listing.rows
        )
    return listing.page(rows, lambda one: one.id)


@router.get("/{evaluation_id}", responses=problems(404))
async def get_evaluation(evaluation_id: EvaluationIdPath, caller: RunsReader, state: State) -> EvaluationView:
    """Get an evaluation, with its result once it has ended."""
    async with state.services.database.connection() as connection:
        found = await ledger.find_evaluation(connection, caller.tenant_id, evaluation_id)
    return existing(found, "evaluation", evaluation_id)


@router.get("/{evaluation_id}/trials", responses=problems(400, 404, 422))
async def list_trials(
    evaluation_id: EvaluationIdPath, caller: RunsReader, state: State, paging: PageQuery, key: _Key = None
) -> Page[TrialView]:
    """List the answers of an evaluation with their verdicts, in the order in which they run."""
    listing = paging.of(caller.tenant_id, "trials", str, evaluation_id, key)
    async with state.services.database.connection() as connection:
        if await ledger.find_evaluation(connection, caller.tenant_id, evaluation_id) is None:
            raise missing("evaluation", evaluation_id)
        rows = await ledger.list_trials(
            connection, caller.tenant_id, evaluation_id, key=key, after=listing.key, limit=listing.rows
        )
    return listing.page(rows, lambda one: one.id)


@router.post("/{evaluation_id}/cancel", responses=problems(404))
async def cancel_evaluation(evaluation_id: EvaluationIdPath, caller: RunsCaller, state: State) -> EvaluationView:
    """Cancel an evaluation and its runs; its result has what was judged. One that has ended stays as it is."""
    return await evaluations.cancel_evaluation(state.services.work, caller.tenant_id, evaluation_id)


@router.delete("/{evaluation_id}", status_code=204, responses=problems(404, 409))
async def delete_evaluation(evaluation_id: EvaluationIdPath, caller: RunsCaller, state: State) -> None:
    """Delete an evaluation that has ended, with its answers."""
    async with state.services.database.connection() as connection:
        await evaluations.delete_evaluation(connection, caller.tenant_id, evaluation_id)
