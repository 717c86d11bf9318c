"""Executes agents in Python: their functions run in a process of users' code, and their steps are the turn's."""

from nova_workers.engines.code.engine import CodeEngine

__all__ = ["CodeEngine"]
