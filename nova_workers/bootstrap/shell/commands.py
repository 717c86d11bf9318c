"""How a worker runs the commands of agents."""

from __future__ import annotations

from dataclasses import replace

import structlog

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.egress import EgressProxy
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.bootstrap.shell.sandbox import sandbox_of
from nova_workers.engines.commands import ShellSettings
from nova_workers.shell_sandbox import ShellSandbox

_log = structlog.get_logger(__name__)


def find_shell(settings: Settings) -> ShellSettings:
    """Return how commands are run, after a trial of this machine's sandbox. Blocks briefly.

    Raises:
        ConfigurationError: All commands need a sandbox, and there is none.
    """
    tools = settings.tools
    enclosing, why_none = _find_sandbox(settings)
    if enclosing is None and tools.shell_sandbox:
        raise ConfigurationError(
            f"NOVA_TOOLS__SHELL_SANDBOX is on. {why_none} Or turn it off, and give the workers a container of their "
            "own."
        )
    return ShellSettings(
        timeout_s=tools.shell_timeout_s,
        max_timeout_s=tools.shell_max_timeout_s,
        output_bytes=tools.shell_output_bytes,
        passed_on=tools.shell_environment,
        sandbox=enclosing if tools.shell_sandbox else None,
        enclosing=enclosing,
        why_none=why_none,
    )


def _find_sandbox(settings: Settings) -> tuple[ShellSandbox | None, str]:
    """Return this machine's sandbox; or None, and why there is none."""
    try:
        sandbox = sandbox_of(settings)
    except ConfigurationError as error:
        _log.warning("sandbox.none", reason=error.message)
        return None, error.message
    missing = [] if sandbox.trial is None else sandbox.trial.missing
    rules = OutboundRules(ports=settings.tools.fetch_ports, allow_hosts=settings.tools.egress_allow_hosts)
    sandbox = replace(sandbox, gate=EgressProxy(rules))
    _log.info("sandbox.found", kind=sandbox.kind, landlock=sandbox.landlock, missing=missing)
    return sandbox, ""
