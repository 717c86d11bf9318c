"""Every promise of the run protocol, with the tests that prove it.

A test says `@proves("claim.fifo")`. `tests/contract/test_requirements.py` fails on a promise that no test proves and on
a test that proves what is not promised here. They cover the run protocol, live events
and beat, and the faults that the fleet must survive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["REQUIREMENTS", "proves"]

Test = TypeVar("Test", bound=Callable[..., Any])

REQUIREMENTS: Final[dict[str, str]] = {
    # submit
    "submit.enqueue": "A message on a busy thread waits until the runs before it have ended.",
    "submit.reject": "on_busy=reject answers with the id of the run that is active, and writes nothing.",
    "submit.interrupt": "on_busy=interrupt stops the active run, keeps its partial text, and goes next.",
    "submit.steer": "on_busy=steer joins the running turn at its next step boundary, once.",
    "submit.steer-late": "A steering message whose turn ends first becomes an ordinary run.",
    "submit.idempotent": "The same Idempotency-Key returns the first run again.",
    "submit.idempotent-concurrent": "Of submissions with one key at the same time, one makes a run.",
    "submit.idempotent-body": "The same key with another body is refused.",
    "submit.idempotent-expiry": "A key that expired is free again.",
    "submit.broker-down": "With the broker down a message is accepted, and runs later.",
    "submit.refused-whole": "A refused request writes nothing.",
    # claim
    "claim.fifo": "Runs of a thread are executed in the order of their acceptance.",
    "claim.exclusive": "At most one run of a thread runs, whatever the number of workers and doorbells.",
    "claim.duplicate-doorbell": "A doorbell that comes twice finds nothing to claim.",
    "claim.fence": "Each claim of a thread has a higher fence than all before it, also after Redis was wiped.",
    "claim.without-redis": "Without Redis runs are claimed all the same; the lock only saves work.",
    "claim.busy-lock": "Work that arrives while a thread is locked is found when the lock is released.",
    "claim.old-fence": "No write with an old fence is accepted: journal, result, step, finish, requeue.",
    # suspend
    "suspend.holds-nothing": "A run that waits holds no slot, no lock and no lease, and keeps its thread.",
    "suspend.answer": "The first answer is the tool's result; a later one is refused.",
    "suspend.expiry": "An unanswered question ends in its default, with an agent, or without an answer.",
    "suspend.child": "The end of a child run is the result of the call that started it.",
    "suspend.one-slot": "Agents that ask agents finish on a fleet of one slot.",
    "suspend.approval": "A call that needs permission runs after it is given, once, and not without it.",
    "suspend.cancel": "Canceling a waiting run also cancels the runs that it waits for.",
    "suspend.restart": "A run that waits survives the death of every process.",
    "questions.delivered": "A run that waits for a person puts an item into the inbox, and rings for its delivery.",
    "questions.closed": "The end of a wait closes its inbox item and its deliveries that are still pending.",
    "questions.once": "A question is one inbox item, whatever happens to the worker that suspends its run.",
    "questions.shown": "A thread and its task say what their run waits for.",
    "suspend.once": "However a wait ends, and whichever process dies, the run continues once.",
    # keep
    "keep.renew": "A lease is renewed as long as its worker lives.",
    "keep.cancel": "A renewal returns a cancel request whose notification was lost.",
    "keep.taken": "A worker whose run was taken over stops it.",
    "keep.self-fence": "A lease that cannot be renewed for two thirds of its life stops its run.",
    # journal
    "journal.resume": "After a crash between any two writes the run continues after its last committed step.",
    "journal.once": "A tool whose result is committed is not run again.",
    "journal.in-flight": "A call that was in flight is reported as interrupted, unless its tool is idempotent.",
    "journal.partial": "Of several calls in a step, those that ended before a crash keep their results.",
    "journal.lost-reply": "A write whose reply was lost is repeated and counted once.",
    # finish
    "finish.whole": "One transaction writes the end of turn and run, usage, head and its history, and the effects.",
    "finish.next": "The end of a run wakes the next of its thread.",
    "finish.usage-once": "Each model response is counted once.",
    "finish.history": "In the history that a model gets, every tool_use has its result.",
    "finish.session": "A turn that fails leaves the thread its last good session.",
    # prompt
    "prompt.sections": "A prompt has its sections in order, from stable to changing, and no empty one.",
    "prompt.stable": "The stable part of a prompt is the same bytes in every turn of an agent.",
    "prompt.inert": "No content closes a section or opens one, however it spells the tag.",
    "prompt.background": "A background run sends people only what its agent delivers with a tool.",
    "prompt.endings": "The next turn sees which earlier turns were stopped or failed, in their places.",
    # context
    "context.time": "Each message names date, time of day and zone of its turn's start, in the tenant's zone.",
    "context.occurrence": "A run of a trigger names the trigger and the planned time.",
    "context.prefix": "Each request begins with the bytes of the one before it, at whatever times the turns start.",
    "context.resume": "An attempt after a crash shows the model the same event context.",
    # cancel
    "cancel.queued": "A queued run is canceled at once.",
    "cancel.running": "A running run stops at once, its partial text is kept.",
    "cancel.twice": "Canceling again changes nothing.",
    "cancel.over": "An ended run cannot be canceled.",
    "cancel.bulk": "All open runs that match are canceled.",
    "cancel.withdraw": "A queued run can be withdrawn and edited until a worker has begun it.",
    # drain and recovery
    "drain.boundary": "A draining worker requeues a run at its next step boundary; another continues it.",
    "drain.mid-step": "After the grace a run is stopped in mid-step and requeued.",
    "drain.no-claims": "A draining worker claims nothing, and passes doorbells on.",
    "drain.sigterm": "On SIGTERM a worker process requeues its runs and ends within its grace.",
    "recover.expired": "A run whose lease expired is requeued at the front of its queue.",
    "recover.max-attempts": "A run that loses its worker too often fails as worker_lost.",
    "recover.kill": "After kill -9 of a worker all its runs are resumed within 45 s, none twice.",
    "recover.doorbell": "A doorbell that was lost is rung again, and not while the broker has a backlog.",
    "recover.twice": "Any number of reconcilers may work at once.",
    "recover.zombie": "A worker that slept past its lease writes nothing.",
    "recover.postgres": "Postgres that is restarted under load costs no run.",
    "submit.batch": "Of many messages in one request each has its own outcome, and its own idempotency key.",
    # runs that start later
    "start.later": "A run with a start is accepted at once, in no queue, and enters the queue at its time.",
    "start.order": "A scheduled run delays no other, and goes after what came before its start.",
    "start.cancel": "A run that has not started is canceled, withdrawn and edited like a queued one.",
    "start.timer": "A start within a minute does not wait for the reconciler.",
    "start.twice": "A scheduled run starts once, whichever process starts it or dies.",
    "collect.one-turn": "Messages that are collected become one turn in their order; each run has its outcome.",
    "collect.cancel": "A message that is canceled while it is collected is not in the turn.",
    "collect.twice": "A message that is collected is in one turn, once, whatever crashes.",
    # switches
    "pause.scopes": "Fleet, tenant or agent can be paused: queued runs stay queued, nothing new starts.",
    "pause.resume": "After a resume the queued runs are executed.",
    # fairness
    "fair.tenants": "On a busy fleet a tenant's run starts within a turn's length, however many others queued before.",
    "fair.weight": "On a busy fleet tenants are served by their weights, and agents of a tenant in turn.",
    "fair.priority": "Runs of a tenant go by priority where the fleet is busy; a thread keeps its order.",
    "fair.bells": "Whichever run a doorbell serves, no run that could start is left without one.",
    "fair.cap": "A tenant and an agent never have more runs at once than their caps, also with concurrent claims.",
    "fair.cap-freed": "The end of a run under a cap wakes the next; if its worker dies then, the reconciler does.",
    "fair.pick-cost": "The cost of choosing the next run does not grow with queued runs whose threads are free.",
    # budgets
    "budgets.spent": "A run whose tenant, agent or trigger has spent its day's budget fails, and no model is called.",
    "budgets.rest": "The rest of the day's budgets bounds what a turn may cost.",
    "budgets.day": "The day of a budget is one of the tenant's time zone.",
    # Redis
    "redis.wipe": "Wiping Redis at any moment loses no run and no message.",
    "redis.restart": "Redis that is killed and restarted under load costs no run.",
    "redis.ttl": "Every key has a TTL, but those of Celery's transport.",
    # live events
    "events.ids": "Event ids are <attempt>-<seq> without gaps, and only grow.",
    "events.batched": "A run's events leave at most once a flush interval, several in an entry.",
    "events.old-attempt": "A worker that lost its run cannot write to its stream.",
    "events.redis-away": "Events wait while Redis is away, and are sent when it is back.",
    "events.resume": "A follower that gives the last id it saw misses nothing and gets nothing twice.",
    "events.one-connection": "One connection serves all followers of a process.",
    "events.gap": "A follower that missed events gets them from the stream.",
    # beat
    "beat.safe-to-double": "A tick may come twice, or never: due work is in Postgres.",
    "beat.killed": "A beat that was killed and restarted continues.",
    "reference.offline": "GET /docs works without the internet, and under a policy without inline scripts.",
    # notes, files and deliveries
    "notes.seen": "An agent sees its own notes and those that others of its tenant share; it changes only its own.",
    "notes.passage": "A passage of a note is replaced only where it occurs exactly once.",
    "notes.concurrent": "Concurrent changes of one note are all kept.",
    "files.confined": "file_send reads nothing outside the agent's directories, through no path and no link.",
    "files.whole": "A file and its delivery are written together, and once a run, also when the tool runs again.",
    "files.inert": "A file that an agent sent is saved by a browser, and never shown or run.",
    "deliveries.background": "Only runs in the background have notify_user, and it needs no grant.",
    "deliveries.bounded": "A run sends no more notifications and files than its limits, concurrently or one by one.",
    "deliveries.note": "The user is notified of a shared note once a run, and not of a note that was unshared.",
    # what goes outside
    "outbox.at-least-once": "A due delivery is sent, and sent again under the same id if a process crashed meanwhile.",
    "outbox.backoff": "A failed attempt is followed by another after a longer pause, up to a limit.",
    "outbox.isolation": "A dead or slow address does not delay the others.",
    "outbox.once-at-a-time": "Any number of senders share the outbox: each delivery has one sender at a time.",
    "outbox.drain": "A worker that stops releases the deliveries that it has not sent.",
    "outbox.run-end": "The end of a run goes once to each subscribed webhook, at no cost to other tenants.",
    "outbox.channels": "Each agent's channels are resolved when the process starts; a missing channel stops it.",
    "webhooks.signed": "A webhook is signed as the Standard Webhooks say, with the time of the database.",
    "webhooks.wanted": "A webhook gets the kinds and the agent that it subscribes to, and the inbox keeps its own.",
    "webhooks.tenants": "A webhook gets nothing of another tenant, and no other tenant can change it.",
    "webhooks.rotation": "A replaced secret also signs until its grace ends.",
    "webhooks.at-rest": "A webhook's secret is shown once, and is stored as a ciphertext bound to its row.",
    "webhooks.guarded": "Nothing is sent to an address inside, in the clear, or where a redirect leads.",
    "webhooks.disabled": "A webhook that fails for long is disabled with the reason; the inbox gets one notification.",
    "webhooks.replay": "A delivery that ended is sent again by its id, under its id.",
    # past conversations
    "history.own": "An agent searches and reads only its own conversations.",
    "history.hybrid": "Messages are found by their words and by their meaning; without one search, by the other.",
    "history.deleted": "A deleted thread is not found: its words and vectors go with it, whatever runs at that moment.",
    # agents
    "agents.versions": "Every change of an agent is a version with its author; a run names the version it used.",
    "agents.if-match": "A change that expects another version is refused, with both versions named.",
    "agents.malformed": "A malformed agent is refused with the field named, and nothing is written.",
    "agents.self": "An agent changes its own instructions and responsibilities; the next turn has them.",
    "agents.rights": "No tool gives an agent rights that the agent using it lacks; trust is set by people only.",
    "agents.approvals": "Approval rules decide over calls of any tool; what is denied stays denied.",
    # tasks
    "tasks.moves": "A task goes from draft to active or canceled, from active to done or canceled, and nowhere else.",
    "tasks.numbers": "A task's number is its tenant's own and is never given again.",
    "tasks.thread": "An active task has one thread of its own, with its owner.",
    "tasks.steps": "A step that is given with its id stays the same step when the plan is replaced.",
    "tasks.linkage": "No update of steps sets, removes or overwrites a step's link to a subtask.",
    "tasks.subtask-owner": "Of agents only the owner of a task makes subtasks of it.",
    "tasks.wake": "The end of a subtask marks or frees its step and wakes the owner above, in one transaction.",
    "tasks.cascade": "Canceling a task cancels all that is open below it.",
    "tasks.complete": "A task with open subtasks is not completed, and completing one completes no other.",
    "tasks.parts": "An agent changes the tasks that it owns or made, and those below its own.",
    "tasks.tenants": "Another tenant's task cannot be distinguished from one that does not exist.",
    "tasks.no-lost-update": "Concurrent changes of a task are all kept, and each is in its history.",
    "tasks.section": "The prompt of a run on a task's thread contains the task.",
    "tasks.tree": "Under any order of changes the tree of tasks, its steps and its history are consistent.",
    # skills
    "skills.form": "A malformed skill, or one with a file no directory can hold, is refused with the field named.",
    "skills.assigned": "Only a skill of the library is assigned, and one that is assigned is not removed.",
    "skills.on-demand": "The prompt has names and descriptions; an agent loads the body of a skill with a tool.",
    "skills.own": "An agent loads the skills that it has, and no others of the library.",
    "skills.files": "The engine claude_agent has an agent's skills as files for one turn, which widen no trust.",
    # work on tasks
    "work.once": "A task has at most one run that works on it, whatever the number of schedulers.",
    "work.crash": "A scheduler that dies at any point leaves a run that is executed, or a task that is still due.",
    "work.hours": "Tasks are begun in their tenant's hours only, by the clocks of its zone, also over clock changes.",
    "work.parked": "A task that waits for a subtask costs no model call, and continues when that ends.",
    "work.progress": "A task that a number of consecutive runs did not change is parked, with a notice.",
    "work.wake": "A wake of a task is never lost: the task is worked on at once, or after its current run.",
    "work.now": "Run now begins work at any hour, also on a parked task, and never a second concurrent run.",
    "work.ended": "No run continues on a task that has ended, or that another agent owns now.",
    "work.fleet": "On a real fleet an active task is worked on to its end without a further request.",
    # triggers
    "triggers.form": "A trigger that is malformed, or would never fire, is refused with the field named.",
    "triggers.gap": "A time of the day that a change of the clocks leaves out is due at the first instant after.",
    "triggers.twice": "A time of the day that comes twice fires once, an interval fires both times.",
    "triggers.oracle": "Cron lines fire when a second implementation says, over the clock changes of real zones.",
    "triggers.own": "An agent sees and changes the triggers that start itself, and no others.",
    "triggers.fires": "A due occurrence begins a run with the trigger's words, and is one row with that run.",
    "triggers.once": "Each occurrence fires once, with any number of beats, workers and ticks at the same time.",
    "triggers.crash": "A crash before, within or after a firing's transaction leaves it done once or due.",
    "triggers.broker": "With the broker unavailable, or wiped, due occurrences fire, and run later.",
    "triggers.database": "A database that is unavailable for a while loses no occurrence and doubles none.",
    "triggers.clock": "The database's clock decides what is due: a machine an hour off fires no sooner and no later.",
    "triggers.many": "Ten thousand triggers that are due in one second all fire, once.",
    "triggers.overlap": "While a run of an earlier occurrence is open, the next is skipped, queued, or cancels it.",
    "secrets.declared": "A value in a tool's field that is declared to hold secrets is redacted from the call on.",
    "unavailable.says-what": "An error about an unavailable database says whether anything may have been written.",
    "tenants.operator": "An operator makes, lists, changes and pauses tenants; the first key of one is shown once.",
    "tenants.end": "Ending a tenant makes it unusable at once and deletes all of its rows, and none of others.",
    "agents.rename": "A renamed agent keeps all that it has; its former id is refused, and names the new one.",
    "agents.rename-resumed": "A rename whose process dies is finished by another, and no run starts until then.",
    "triggers.catch-up": "Late occurrences fire once, or each, within the window, and later not at all.",
    "triggers.limits": "A trigger starts no more runs per day, and spends no more, than its limits.",
    "triggers.failures": "A trigger pauses with the reason after consecutive failures; a success resets the count.",
    "triggers.gone": "A trigger whose agent or thread was deleted pauses with the reason.",
    "triggers.held": "Occurrences due while their agent is paused wait, and count as late when the pause ends.",
    "triggers.by-hand": "A trigger fires on request, and its schedule stays as it is.",
    "triggers.gate": "A gate is evaluated before a run starts, costs no model call, and delays no other trigger.",
    # export and import
    "archive.round-trip": "An export that is imported elsewhere is exported again to the byte.",
    "archive.whole": "An archive is imported whole or not at all.",
    "archive.tenants": "An archive cannot reach into another tenant.",
    # secrets
    "secrets.at-rest": "A secret is stored as a ciphertext that can be decrypted in its own row only.",
    "secrets.rotation": "Any number of rotations at once leave every secret under the current master key.",
    "secrets.write-only": "Nothing that people can call returns a secret's value.",
    "secrets.hidden": "No value of a secret of a run's agent is in its rows, its live events or its logs.",
    "secrets.stream": "However a stream is split, no part of a secret passes.",
    "secrets.restored": "A call that waited for permission is made with its original values.",
    "mcp.permitted": "No program is started, and no address inside connected to, that the operator did not name.",
    # engines
    "engine.thinking": "A model's thinking is sent back to it unchanged, with its signature.",
    "engine.output": "With an output schema the answer is a value that matches it, also in the ledger and over HTTP.",
    "engine.limits": "A turn ends cleanly at its bound on model calls, tokens or cost, and its run says at which.",
    "engine.overflow-in-turn": "A turn longer than the window continues after a summary of its first steps.",
    "engine.subagents": "A subagent's calls pass the policy of its turn, and count with the turn's own.",
    "child.descendants": "Nothing that a command started outlives its call, whatever session or environment it took.",
    "child.killed-worker": "The death of a worker also ends all processes that its commands and servers started.",
    "engine.mcp-away": "A dead or silent server costs a turn that server's tools, and does not end it.",
    "engine.first-byte": "A provider that accepts and never answers times out, and the next model, if any, is used.",
    "engine.keys": "A failing key is replaced by the next in the same turn, and rests for all engines and workers.",
    "engine.probe": "A probe of a model that was down, if it is stopped, lets the next call probe at once.",
    "engine.windows": "Compaction and fallback go by the same context windows.",
    "engine.waits": "A call whose result comes from outside ends the program; another continues when it is there.",
    "engine.sandbox": "A command cannot undo its own confinement, also where the worker is root.",
    # backfill and retention
    "backfill.finds": "What was said while effects were off is found once they are on.",
    "backfill.model": "After a change of the model each message gets a vector of the new one, and then loses the old.",
    "backfill.resumes": "The backfill continues where it stopped after any crash, and makes nothing twice.",
    "backfill.shared": "Workers at once make each vector once.",
    "backfill.fair": "A tenant with a long past does not hold up the backfill of another.",
    "backfill.yields": "The backfill stops for live work, and when its worker drains.",
    "retention.aged": "What is older than its age is deleted in bounded batches, and what is needed stays.",
    "retention.whole": "A thread whose policy keeps nothing, or that was deleted long ago, leaves only its usage.",
    "retention.latest": "A thread that is cut down to its latest turn goes on from it.",
    "retention.forks": "Turns that a fork goes on from stay as long as the fork, and go with it.",
    "retention.needed": "A thread with an open run, an open task or a trigger is not touched by a policy.",
    "retention.resumes": "A crash in a deletion leaves a readable thread, and the next pass ends it.",
    "retention.shared": "Workers at once delete what is due once, and nothing else.",
    "retention.tenants": "A policy touches threads of its tenant's agent only.",
    # bad input and faults
    "input.unknown": "Unknown and foreign ids are not found, and cannot be told apart.",
    "input.deleted-thread": "A deleted thread takes no message, and nothing of it stays queued.",
    "engine.unusable-calls": "A call that cannot be stored or sent again is a tool error for the model, counted once.",
    "engine.unique-calls": "Two calls with one id are two calls, in one response, in one turn and in one thread.",
    "finish.unstorable": "A write that the database refuses for good ends its run, once; the thread goes on.",
    "engine.refused-content": "What the provider refused gives way to a note in later requests; the ledger keeps it.",
    "input.any-text": "Text that no database takes does not stop a run.",
    "machine": "Under any order of submit, claim, crash, cancel, steer and drain the invariants hold.",
    # orchestrations
    "orchestration.config-whole": "A configuration with errors is refused whole, and each error has its place.",
    "orchestration.tenants": "An orchestration, its agents and its messages are reachable for their tenant only.",
    "orchestration.model-fits": "A model outside peer_models, of an unavailable provider or too weak is never taken.",
    "orchestration.rankings": "Models are ranked by the ended runs of agents, by one statement that may be repeated.",
    "orchestration.discovery": "Discovery of models changes nothing that a person set, and no program can fail it.",
}


def proves(*ids: str) -> Callable[[Test], Test]:
    """Tie a test to the promises that it proves.

    Raises:
        KeyError: There is no such promise.
    """
    for requirement in ids:
        REQUIREMENTS[requirement]
    return lambda test: test
