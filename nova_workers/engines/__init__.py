"""Engines: the only code that touches an AI SDK. Each implements `nova_workers.contracts.engine.Engine`.

Only `bootstrap` imports an engine. Engines are independent of agents, threads, runs and capabilities.
"""
