"""Engines: the only code that touches an AI SDK. Each implements `nova_workers.contracts.engine.Engine`.

Only `bootstrap` imports an engine. Engines import nothing of ours but `contracts` and `errors`, and know no agent,
thread, run or capability.
"""
