"""Checks of the sandbox of commands: what the workers' own trials reached, and a trial on this machine."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.shell.sandbox import sandbox_of
from nova_workers.cli.operations.findings import Finding
from nova_workers.contracts.http.fleet import SandboxTrial, WorkerView

_FIX_NONE = (
    "commands of tenants with ceilings are refused there. Install bubblewrap, or let the workers make user "
    "namespaces or use Landlock; or give such tenants workers with a container of their own, and lift the "
    "requirement: `nova tenants ceilings TENANT --no-sandbox`"
)
_FIX_LANDLOCK = (
    "commands of the operator's own tenant can read master keys of NOVA_HOME there. Install bubblewrap and permit user "
    "namespaces"
)


def check_sandboxes(workers: Sequence[WorkerView]) -> list[Finding]:
    """Check that every worker confines commands, by its own trial; no worker, no finding."""
    if not workers:
        return []
    kinds = Counter(worker.sandbox or "none" for worker in workers)
    details = [", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))]
    details += sorted({_words(worker) for worker in workers})
    fix = _FIX_NONE if "none" in kinds else _FIX_LANDLOCK if "landlock" in kinds else ""
    return [Finding("sandbox", "warn" if fix else "ok", "; ".join(details), fix)]


async def check_sandbox_here(settings: Settings) -> list[Finding]:
    """Run a command as a worker of this machine, this user and these settings would for a tenant with ceilings."""
    user = f"as user {os.geteuid()}"
    try:
        sandbox = await asyncio.to_thread(sandbox_of, settings)
    except ConfigurationError as error:
        return [Finding("sandbox here", "warn", f"none {user}: {error.message}", _FIX_NONE)]
    return [Finding("sandbox here", "ok", f"{sandbox.kind} {user}: {_reached(sandbox.trial)}")]


def _words(worker: WorkerView) -> str:
    trial = worker.sandbox_trial
    if worker.sandbox is None:
        why = "its log names the reason (sandbox.none)" if trial is None else trial.why_none
        return f"none on {worker.host}: {why}"
    if trial is None:
        return f"not tried on {worker.host}, which runs an earlier release"
    return _reached(trial)


def _reached(trial: SandboxTrial | None) -> str:
    if trial is None:
        return "not tried"
    lacks = f"; without {', '.join(trial.missing)}" if trial.missing else ""
    lacks += (
        "" if "proxy" in trial.egress else "; without a proxy: commands of tenants with egress `proxy` have no network"
    )
    return f"a command (user {trial.user}) reached {', '.join(trial.reached) or 'nothing of others'}{lacks}"
