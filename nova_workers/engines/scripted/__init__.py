"""A deterministic engine that plays a JSON script; for tests, load and chaos, never for production."""

from nova_workers.engines.scripted.engine import ScriptedEngine

__all__ = ["ScriptedEngine"]
