"""Which features of the kernel and of the machine the sandbox lacks here, in words for an operator."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from nova_workers.sandbox_launcher.landlock import version as landlock_version
from nova_workers.sandbox_launcher.rules import LEAST_ALONE
from nova_workers.shell_sandbox.programs import call_filter

_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0", "user namespaces (sysctl user.max_user_namespaces is 0)"),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "user namespaces without root (sysctl kernel.unprivileged_userns_clone is 0)",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "user namespaces without a profile of AppArmor (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)",
    ),
)


def missing_features() -> tuple[str, ...]:
    """Return the missing features; empty where the machine has everything that the sandbox can use."""
    missing: list[str] = []
    if shutil.which("bwrap") is None:
        missing.append("bubblewrap")
    missing += [words for path, value, words in _SWITCHES if os.geteuid() != 0 and _read(path) == value]
    known = landlock_version()
    if known < LEAST_ALONE:
        missing.append(
            f"Landlock {LEAST_ALONE} (Linux 6.12, with `landlock` in lsm=); this kernel has "
            + (f"Landlock {known}" if known else "none")
        )
    if call_filter() is None or "\nSeccomp:" not in _read("/proc/self/status"):
        missing.append("filters of system calls (seccomp) for this kind of machine")
    return tuple(missing)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\n")
    except OSError:
        return ""
