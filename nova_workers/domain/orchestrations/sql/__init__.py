"""Statements on orchestrations: inserts, moves of agents between states, messages between agents, and reads.

Every transaction that changes a tree locks its orchestration's row first (`locking.lock_tree`), then threads, then
runs. So changes of one tree are serialized, and no message is missed between a wait and its check.
"""
