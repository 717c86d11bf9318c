"""Lets models judge the answers of an evaluation. Their calls are background runs of their own, begun by its tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.evaluators import Evaluator, Judge
from nova_workers.contracts.http.evaluations import CalibrationView
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.datasets.rules.redaction import ExampleRedactor
from nova_workers.domain.evaluations.rules.evaluators import AWAITED
from nova_workers.domain.evaluations.sql import OpenEvaluation
from nova_workers.domain.judges.rules.asking import (
    JudgedCase,
    Opinion,
    joined,
    judge_spec,
    pair_message,
    passes,
    read_run,
    score_message,
)
from nova_workers.domain.judges.rules.budgets import room_in_budget
from nova_workers.domain.judges.rules.calibration import RatedAnswer, calibrate
from nova_workers.domain.judges.sql import judgements as ledger
from nova_workers.domain.judges.sql.judgements import JudgeProgress, PendingQuestion, Question
from nova_workers.domain.judges.sql.runs import JudgeRun, ensure_judge, find_judge, queue_judges
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.work import UnitOfWork

JudgesByPlace = Mapping[int, Judge]


def judges_of(evaluators: Sequence[Evaluator]) -> JudgesByPlace:
    """Return the judges among evaluators, by their places."""
    return {at: one for at, one in enumerate(evaluators) if isinstance(one, Judge)}


async def estimate_judges_usd(
    connection: Connection, which: Mapping[str, Any], evaluators: Sequence[Evaluator], *, answers: int, pairs: int
) -> float | None:
    """Return the estimated cost of the judges of an evaluation; None without any. None costs more than its budget.

    Args:
        connection: Where.
        which: The examples of the evaluation, and its tenant.
        evaluators: All of it.
        answers: How many answers are judged by a score.
        pairs: How many pairs of answers are judged, each twice.
    """
    judges = judges_of(evaluators).values()
    if not judges:
        return None
    total = 0.0
    for judge in judges:
        version = await find_judge(connection, which["tenant_id"], judge_spec(judge))
        mean = None if version is None else await ledger.mean_cost_usd(connection, which["tenant_id"], version)
        rated = await ledger.count_rated(connection, judge, which)
        calls = 2 * pairs if judge.pairwise else answers + rated
        total += judge.budget_usd if mean is None else min(judge.budget_usd, mean * calls)
    return total


async def ask_about_rated(
    connection: Connection, evaluation_id: str, which: Mapping[str, Any], evaluators: Sequence[Evaluator]
) -> None:
    """Add the questions by which the judges of a new evaluation are compared with people."""
    for at, judge in judges_of(evaluators).items():
        await ledger.add_rated(connection, evaluation_id, at, judge, which)


async def read_calibrations(connection: Connection, evaluation: OpenEvaluation) -> dict[int, CalibrationView]:
    """Return how the judges of an evaluation agree with people, by their places."""
    rows = await ledger.read_calibration(connection, evaluation.id)
    return {
        at: calibrate(judge, [RatedAnswer(row["score"], row["human_score"]) for row in rows if row["evaluator"] == at])
        for at, judge in judges_of(evaluation.evaluators).items()
        if ledger.is_calibrated(judge)
    }


async def ask_judges(tx: UnitOfWork, evaluation: OpenEvaluation, trials: Sequence[JsonObject]) -> None:
    """Add the questions on answers that were just given, and the verdicts that need no question."""
    judges = judges_of(evaluation.evaluators)
    questions = [
        Question(trial["id"], at)
        for at, judge in judges.items()
        if not judge.pairwise
        for trial in trials
        if _is_awaited(trial["verdicts"], at)
    ]
    if any(judge.pairwise for judge in judges.values()):
        pairs = await ledger.find_pairs(tx.connection, evaluation.id, [trial["id"] for trial in trials])
        for at in (at for at, judge in judges.items() if judge.pairwise):
            settled: dict[str, JsonObject] = {}
            for pair in pairs:
                if _is_awaited(pair["candidate_verdicts"], at) and _is_awaited(pair["baseline_verdicts"], at):
                    candidate, baseline = pair["candidate_id"], pair["baseline_id"]
                    questions += [Question(candidate, at, baseline, swapped) for swapped in (False, True)]
                else:
                    settled |= _without_question(pair, at)
            if settled:
                await ledger.set_verdicts(tx.connection, evaluation.id, at, settled)
    if questions:
        await ledger.add_questions(tx.connection, evaluation.tenant_id, evaluation.id, questions)


async def read_judges(tx: UnitOfWork, evaluation: OpenEvaluation, *, limit: int) -> bool:
    """Write the verdicts of the judges that answered. Return whether any did."""
    judges = judges_of(evaluation.evaluators)
    ended = await ledger.ended_questions(tx.connection, evaluation.id, limit=limit) if judges else []
    if not ended:
        return False
    opinions: list[JsonObject] = []
    touched: dict[int, set[str]] = {}
    for row in ended:
        opinion = read_run(judges[row["evaluator"]], row["status"], row["answer"], row["error"])
        if row["trial_id"] is not None:
            touched.setdefault(row["evaluator"], set()).add(row["trial_id"])
        opinions.append(
            {"id": row["id"], "score": opinion.score, "reason": opinion.reason, "cost_usd": row["cost_usd"]}
        )
    await ledger.write_opinions(tx.connection, evaluation.id, opinions)
    for at, trial_ids in touched.items():
        await _write_verdicts(tx, evaluation, at, judges[at], sorted(trial_ids))
    return True


async def begin_judges(tx: UnitOfWork, evaluation: OpenEvaluation, *, most: int, with_rated: bool) -> list[Doorbell]:
    """Queue the next calls of the judges, as far as their budgets reach. What is beyond is not judged.

    Args:
        tx: In which the evaluation is locked.
        evaluation: Its judges are those of its evaluators.
        most: How many calls at most.
        with_rated: Whether answers that people rated are judged too: last, with what is left of the budget.
    """
    judges = judges_of(evaluation.evaluators)
    bells: list[Doorbell] = []
    for progress in await ledger.read_progress(tx.connection, evaluation.id) if judges else ():
        judge = judges[progress.evaluator]
        room = room_in_budget(judge.budget_usd, progress)
        if not progress.pending:
            continue
        if room <= 0 and not progress.running:
            await _give_up(tx, evaluation, judge, progress)
        elif (count := min(room, most - len(bells))) > 0:
            bells += await _begin(tx, evaluation, progress.evaluator, count=count, with_rated=with_rated)
    return bells


async def _begin(
    tx: UnitOfWork, evaluation: OpenEvaluation, at: int, *, count: int, with_rated: bool
) -> Sequence[Doorbell]:
    judge = judges_of(evaluation.evaluators)[at]
    found = await ledger.next_questions(tx.connection, evaluation.id, at, limit=count, with_rated=with_rated)
    if gone := [one.id for one in found if one.answer is None]:
        why = {"score": None, "reason": "the run that people rated is gone", "cost_usd": None}
        await ledger.write_opinions(tx.connection, evaluation.id, [{"id": each, **why} for each in gone])
    questions = [one for one in found if one.answer is not None]
    if not questions:
        return ()
    version = await ensure_judge(tx.connection, evaluation.tenant_id, judge_spec(judge))
    runs = {one.id: JudgeRun(new_id("run"), new_id("thr"), _message(judge, one)) for one in questions}
    bells = await queue_judges(tx.connection, evaluation.tenant_id, version, list(runs.values()))
    await ledger.begin_questions(
        tx.connection, evaluation.id, version, {question_id: run.run_id for question_id, run in runs.items()}
    )
    return bells


async def _give_up(tx: UnitOfWork, evaluation: OpenEvaluation, judge: Judge, progress: JudgeProgress) -> None:
    why = f"the judge's budget of {judge.budget_usd:g} USD is spent: {progress.spent_usd:.6f} USD"
    trial_ids = await ledger.give_up(tx.connection, evaluation.id, progress.evaluator, why)
    await _write_verdicts(tx, evaluation, progress.evaluator, judge, trial_ids)


async def _write_verdicts(
    tx: UnitOfWork, evaluation: OpenEvaluation, at: int, judge: Judge, trial_ids: Sequence[str]
) -> None:
    """Write the verdicts of a judge on those of these trials that it was asked about in full."""
    rows = await ledger.complete_opinions(tx.connection, evaluation.id, at, trial_ids)
    by_trial: dict[str, list[Row]] = {}
    for row in rows:
        by_trial.setdefault(row["trial_id"], []).append(row)
    verdicts: dict[str, JsonObject] = {}
    for trial_id, found in by_trial.items():
        opinions = [Opinion(row["score"], row["reason"]) for row in found]
        opinion = joined(*opinions) if judge.pairwise else opinions[0]
        verdicts[trial_id] = _verdict(judge, opinion.score, opinion.reason)
        if judge.pairwise:
            other = None if opinion.score is None else 1 - opinion.score
            verdicts[found[0]["other_trial_id"]] = _verdict(judge, other, opinion.reason)
    if verdicts:
        await ledger.set_verdicts(tx.connection, evaluation.id, at, verdicts)


def _message(judge: Judge, question: PendingQuestion) -> Sequence[ContentBlock]:
    answer, expected = question.answer or "", question.expected
    if question.redact is not None:
        answer = ExampleRedactor(question.redact).text(answer)
        # An example that was taken with its answer expects that: the judge would find it perfect.
        expected = None if expected == answer else expected
    case = JudgedCase(question.input, question.context, expected, question.rubric)
    if question.other_answer is None:
        return score_message(judge, case, answer)
    if question.is_swapped:
        return pair_message(judge, case, question.other_answer, answer)
    return pair_message(judge, case, answer, question.other_answer)


def _is_awaited(verdicts: Sequence[JsonObject], at: int) -> bool:
    return verdicts[at]["status"] == "not_judged" and verdicts[at]["reason"] == AWAITED


def _without_question(pair: Row, at: int) -> dict[str, JsonObject]:
    """Return the verdicts on two answers of which one at least cannot be compared.

    One that failed loses against an answer. If one is not judged, such as that of a canceled run, the other is not.
    """
    sides = {"candidate": pair["candidate_verdicts"][at], "baseline": pair["baseline_verdicts"][at]}
    settled: dict[str, JsonObject] = {}
    for side, other in (("candidate", "baseline"), ("baseline", "candidate")):
        if not _is_awaited(pair[f"{side}_verdicts"], at):
            continue
        if sides[other]["status"] == "failed":
            settled[pair[f"{side}_id"]] = _made("passed", 1.0, "the other version has no answer")
        else:
            why = f"the other version's answer is not judged: {sides[other]['reason']}"
            settled[pair[f"{side}_id"]] = _made("not_judged", None, why)
    return settled


def _verdict(judge: Judge, score: float | None, reason: str) -> JsonObject:
    if score is None:
        return _made("not_judged", None, reason)
    return _made("passed" if passes(judge, score) else "failed", score, reason)


def _made(status: Any, score: float | None, reason: str) -> JsonObject:
    return {"status": status, "score": score, "reason": reason}
