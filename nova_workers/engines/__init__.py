"""Engines: the only code that touches an AI SDK. Each implements `nova_workers.contracts.engine.Engine`.

Only `bootstrap` imports an engine. Engines know nothing of agents, threads, runs and capabilities.
"""
