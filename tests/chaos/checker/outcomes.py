"""I1: each accepted message has one run, one terminal outcome, and consistent rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger, Message, Run, Turn
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History

_TURN_STATUS = {"succeeded": "succeeded", "failed": "failed", "canceled": "aborted"}


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare acknowledged messages with runs, and runs with their rows."""
    runs = {run.id: run for run in ledger.runs}
    yield from _acknowledged(history, runs)
    yield from _outcomes(history, runs)
    yield from _rows(ledger)
    yield from _waits(runs, ledger)
    yield from _heads(ledger)


def _acknowledged(history: History, runs: dict[str, Run]) -> Iterator[Violation]:
    for ack in history.acks:
        if ack.run is not None and ack.run not in runs:
            yield Violation("I1", f"the acknowledged run {ack.run} is not in the ledger", (str(ack),))
    answered: dict[str, set[str]] = {}
    for ack in history.acks:
        if ack.key is not None and ack.run is not None:
            answered.setdefault(ack.key, set()).add(ack.run)
    for key, ids in answered.items():
        if len(ids) > 1:
            yield Violation("I1", f"the Idempotency-Key {key} was answered with several runs", tuple(sorted(ids)))
    for key, times in Counter(run.key for run in runs.values() if run.key is not None).items():
        if times > 1:
            rows = tuple(str(run) for run in runs.values() if run.key == key)
            yield Violation("I1", f"the message {key} has {times} runs", rows)


def _outcomes(history: History, runs: dict[str, Run]) -> Iterator[Violation]:
    """Every outcome that a client was given is the ledger's."""
    for ack in history.acks:
        run = runs.get(ack.run or "")
        if run is not None and ack.run_status in _TURN_STATUS and ack.run_status != run.status:
            yield Violation("I1", f"a client got {ack.run_status}, the ledger has {run.status}", (str(ack), str(run)))
    for event in history.events:
        run = runs.get(event.run)
        if run is not None and event.type == "stream_end" and event.data.get("final"):
            status = event.data.get("status")
            if run.has_ended and status != run.status:
                evidence = (str(event), str(run))
                yield Violation("I1", f"a follower got the end {status}, the ledger has {run.status}", evidence)
            elif run.final_event_id is not None and event.id != run.final_event_id:
                evidence = (str(event), str(run))
                yield Violation("I1", f"the end had the id {event.id}, the ledger has {run.final_event_id}", evidence)


def _rows(ledger: Ledger) -> Iterator[Violation]:
    turns, messages = ledger.turns_by_run(), ledger.messages_by_turn()
    calls = Counter(call.turn_id for call in ledger.calls)
    steered: dict[str, list[str]] = {}
    for message in ledger.messages:
        if message.kind == "steering" and message.run_id is not None:
            steered.setdefault(message.run_id, []).append(message.turn_id)
    for run in ledger.runs:
        own = turns.get(run.id, [])
        joined = steered.get(run.id, [])
        for problem in _problems(run, own, joined):
            yield Violation("I1", f"{run.id}: {problem}", (str(run), *map(str, own), *joined))
        for turn in own:
            for problem in _turn_problems(run, turn, messages.get(turn.id, []), calls[turn.id]):
                yield Violation("I1", f"{run.id}: {problem}", (str(turn), *map(str, messages.get(turn.id, []))))
    for call in ledger.calls:
        if call.status in ("pending", "running", "deferred", "approved"):
            turn = next((turn for turn in ledger.turns if turn.id == call.turn_id), None)
            if turn is not None and turn.status in _TURN_STATUS.values():
                yield Violation("I1", f"a call of an ended turn is {call.status}", (str(call), str(turn)))


def _problems(run: Run, turns: list[Turn], joined: list[str]) -> Iterator[str]:
    if not run.has_ended:
        return  # I4 reports it
    if run.status == "merged":
        if turns or len(joined) != 1:
            yield f"merged, with {len(turns)} turns of its own and in {len(joined)} other turns"
    elif joined:
        yield f"{run.status}, and in the turn of another run"
    elif run.status == "canceled" and run.attempt == 0:
        if turns:
            yield "canceled before it began, with a turn"
    elif [turn.status for turn in turns] != [_TURN_STATUS[run.status]]:
        yield f"{run.status}, with turns {[turn.status for turn in turns]}"
    if run.usages != len(turns):
        yield f"{run.usages} rows of usage, {len(turns)} turns"
    if run.finished_at is None:
        yield "ended without a time"


def _turn_problems(run: Run, turn: Turn, messages: list[Message], calls: int) -> Iterator[str]:
    if [message.seq for message in messages] != list(range(len(messages))):
        yield f"messages at {[message.seq for message in messages]}"
    if [message.seq for message in messages if message.kind == "query"] != [0]:
        yield "not exactly one query, at the beginning"
    steps = [message.step for message in messages if message.step is not None]
    if steps != sorted(steps):
        yield f"steps out of order: {steps}"
    if not run.has_ended:
        return
    responses = [message for message in messages if message.kind == "response"]
    if turn.steps != len(responses):
        yield f"{turn.steps} steps, {len(responses)} responses"
    if turn.tool_call_count != calls:
        yield f"counts {turn.tool_call_count} calls, and has {calls}"
    if run.status == "succeeded" and run.result_text != (responses[-1].text if responses else None):
        yield f"the result {run.result_text!r} is not the last response"


def _waits(runs: dict[str, Run], ledger: Ledger) -> Iterator[Violation]:
    """No wait is open whose run has ended, and a call waits once for a person."""
    for wait in ledger.waits:
        run = runs.get(wait.run_id)
        if wait.status == "open" and run is not None and run.has_ended:
            yield Violation("I1", f"a wait of the ended {run.id} is open", (str(wait), str(run)))
    for (run_id, call_id), times in Counter((wait.run_id, wait.tool_call_id) for wait in ledger.waits).items():
        if times > 1:
            yield Violation("I1", f"{run_id} asked {times} times by one call", (call_id,))


def _heads(ledger: Ledger) -> Iterator[Violation]:
    """The moves of a head are its turns, each the child of the one before."""
    turns = {turn.id: turn for turn in ledger.turns}
    moves: dict[str, list[str]] = {}
    for move in ledger.head_moves:
        if move.turn_id is not None:
            moves.setdefault(move.thread_id, []).append(move.turn_id)
    open_threads = {run.thread_id for run in ledger.runs if not run.has_ended}
    for thread in ledger.threads:
        chain = moves.get(thread.id, [])
        parents = [turns[turn_id].parent_turn_id for turn_id in chain if turn_id in turns]
        if parents != [None, *chain][: len(chain)]:
            yield Violation("I1", f"the turns of {thread.id} are no chain", (str(chain), str(parents)))
        if thread.head_turn_id != (chain[-1] if chain else None):
            yield Violation("I1", f"the head of {thread.id} is not its last turn", (str(thread), str(chain)))
        if thread.turn_count != len(chain):
            yield Violation("I1", f"{thread.id} counts {thread.turn_count} turns and has {len(chain)}", (str(thread),))
        if thread.active_run_id is not None and thread.id not in open_threads:
            yield Violation("I1", f"{thread.id} is held by a run that is over", (str(thread),))
