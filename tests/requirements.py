"""Every promise of the run protocol, with the tests that prove it.

A test says `@proves("claim.fifo")`. `tests/contract/test_requirements.py` fails on a promise that no test proves and on
a test that proves what is not promised here. The words are those of the design: sections 5 (the run protocol), 7 (live
events) and 9 (beat), and of the faults that the fleet must bear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["REQUIREMENTS", "proves"]

Test = TypeVar("Test", bound=Callable[..., Any])

REQUIREMENTS: Final[dict[str, str]] = {
    # submit
    "submit.enqueue": "A message on a busy thread waits until the runs before it ended.",
    "submit.reject": "on_busy=reject answers with the id of the run that is active, and writes nothing.",
    "submit.interrupt": "on_busy=interrupt stops the active run, keeps its partial text, and goes next.",
    "submit.steer": "on_busy=steer joins the running turn at its next step boundary, once.",
    "submit.steer-late": "A steering message whose turn ends first becomes an ordinary run.",
    "submit.idempotent": "The same Idempotency-Key returns the first run again.",
    "submit.idempotent-concurrent": "Of submissions with one key at the same time, one makes a run.",
    "submit.idempotent-body": "The same key with another body is refused.",
    "submit.idempotent-expiry": "A key that expired is free again.",
    "submit.broker-down": "With the broker down a message is accepted, and runs later.",
    "submit.refused-whole": "What is refused leaves nothing behind.",
    # claim
    "claim.fifo": "Runs of a thread are executed in the order of their acceptance.",
    "claim.exclusive": "At most one run of a thread runs, whatever the number of workers and doorbells.",
    "claim.duplicate-doorbell": "A doorbell that comes twice finds nothing to claim.",
    "claim.fence": "Each claim of a thread has a higher fence than all before it, also after Redis was wiped.",
    "claim.without-redis": "Without Redis runs are claimed all the same; the lock only saves work.",
    "claim.knock": "Work that comes while a thread is held is looked for when it is released.",
    "claim.old-fence": "No write with an old fence is accepted: journal, result, step, finish, requeue.",
    # keep
    "keep.renew": "A lease is renewed as long as its worker lives.",
    "keep.cancel": "A renewal brings a cancel request whose nudge was lost.",
    "keep.taken": "A worker whose run was taken over stops it.",
    "keep.self-fence": "A lease that cannot be renewed for two thirds of its life stops its run.",
    # journal
    "journal.resume": "After a crash between any two writes the run goes on after its last committed step.",
    "journal.once": "A tool whose result is committed is not run again.",
    "journal.in-flight": "A call that was in flight is reported as interrupted, unless its tool is idempotent.",
    "journal.partial": "Of several calls in a step, those that ended before a crash keep their results.",
    "journal.lost-reply": "A write whose reply was lost is repeated without doubling anything.",
    # finish
    "finish.whole": "One transaction ends turn, run, usage, head and its history, and leaves the effects.",
    "finish.next": "The end of a run wakes the next of its thread.",
    "finish.usage-once": "Each model response is counted once.",
    "finish.history": "In the history that a model gets, every tool_use has its result.",
    # cancel
    "cancel.queued": "A queued run is canceled at once.",
    "cancel.running": "A running run stops at once, its partial text is kept.",
    "cancel.twice": "Cancelling again changes nothing.",
    "cancel.over": "A run that is over cannot be canceled.",
    "cancel.bulk": "All open runs that match are canceled.",
    "cancel.withdraw": "A queued run can be withdrawn and edited until a worker has begun it.",
    # drain and recovery
    "drain.boundary": "A draining worker hands a run back at its next step boundary; another goes on.",
    "drain.mid-step": "After the grace a run is stopped in mid-step, and handed back.",
    "drain.no-claims": "A draining worker claims nothing, and passes doorbells on.",
    "drain.sigterm": "On SIGTERM a worker process hands its runs back and ends within its grace.",
    "recover.expired": "A run whose lease ran out goes back to the front of its line.",
    "recover.max-attempts": "A run that loses its worker too often fails as worker_lost.",
    "recover.kill": "After kill -9 of a worker all its runs are resumed within 45 s, none twice.",
    "recover.doorbell": "A doorbell that was lost is rung again, and not while the broker has a backlog.",
    "recover.twice": "Any number of reconcilers may work at once.",
    "recover.zombie": "A worker that slept past its lease writes nothing.",
    "recover.postgres": "Postgres that is restarted under load costs no run.",
    # switches
    "pause.scopes": "Fleet, tenant or agent can be paused: what is queued keeps, nothing new starts.",
    "pause.resume": "After a resume the queued runs are executed.",
    # Redis
    "redis.wipe": "Wiping Redis at any moment loses no run and no message.",
    "redis.restart": "Redis that is killed and restarted under load costs no run.",
    "redis.ttl": "Every key has a TTL, but those of Celery's transport.",
    # live events
    "events.ids": "Event ids are <attempt>-<seq> without holes, and only grow.",
    "events.batched": "A run's events leave at most once a flush interval, several in an entry.",
    "events.old-attempt": "A worker that lost its run cannot write to its stream.",
    "events.redis-away": "Events wait while Redis is away, and are sent when it is back.",
    "events.resume": "A follower that gives the last id it saw misses nothing and gets nothing twice.",
    "events.one-connection": "One connection serves all followers of a process.",
    "events.gap": "A follower that missed something is brought up to date from the stream.",
    # beat
    "beat.safe-to-double": "A tick may come twice, or never: what is due stands in Postgres.",
    "beat.killed": "A beat that was killed and started again goes on.",
    # bad input and faults
    "input.unknown": "Unknown and foreign ids are not found, and cannot be told apart.",
    "input.deleted-thread": "A deleted thread takes no message, and nothing of it stays queued.",
    "input.any-text": "Text that no database takes does not stop a run.",
    "machine": "Under any order of submit, claim, crash, cancel, steer and drain the invariants hold.",
}


def proves(*ids: str) -> Callable[[Test], Test]:
    """Tie a test to the promises that it proves.

    Raises:
        KeyError: There is no such promise.
    """
    for requirement in ids:
        REQUIREMENTS[requirement]
    return lambda test: test
