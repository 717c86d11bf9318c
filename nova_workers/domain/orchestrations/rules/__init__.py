"""Orchestration: agents that run agents.

An agent of an orchestration is a thread, each of its activations a run, and everything that waits is a suspended run.
So a tree survives the death of every process, and holds no worker slot while it waits.

- `lifecycle`, `matching`, `deadlock`: pure rules: legal moves, which messages end a wait, who breaks a cycle.
- `routing`: applies them to a locked tree within one transaction.
- `unblocking`: breaks deadlocks in it.
- `transitions`: what a tree does when a run of one of its agents begins, is suspended or ends.
- `spawning`: what a child is, holds and is given, from the request of its parent.
- `service`: what agents' tools, the API and the ticks ask for.
"""
