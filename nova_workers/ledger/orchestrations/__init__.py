"""Statements on orchestrations: their agents and states, the messages between agents, and what a tree has used.

Every transaction that changes a tree locks its orchestration's row first (`locking.lock_tree`), then threads, then
runs. So changes of one tree are serialized, and no message is missed between a wait and its check.
"""
