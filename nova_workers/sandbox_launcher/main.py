"""Builds the walls, and executes the command inside them."""

# Not the module `signal`, whose enumerations take 4 ms.
import _signal  # pyright: ignore[reportMissingImports] - it has no stub
import os
import sys

from nova_workers.base import child_supervisor
from nova_workers.sandbox_launcher import mounts
from nova_workers.sandbox_launcher.calls import filter_calls
from nova_workers.sandbox_launcher.kernel import prctl, unshare
from nova_workers.sandbox_launcher.landlock import SCOPES_SINCE
from nova_workers.sandbox_launcher.landlock import version as landlock_version
from nova_workers.sandbox_launcher.network import open_loopback, send_listener
from nova_workers.sandbox_launcher.privileges import (
    become,
    drop_bounds,
    drop_capabilities,
    forbid_new_privileges,
    join_cgroup,
    limit,
)
from nova_workers.sandbox_launcher.rules import is_below, ruleset_of, scopes
from nova_workers.sandbox_launcher.walls import NEW_NETWORK, NEW_PROCESSES, NEW_USERS, Walls

_PR_SET_PDEATHSIG = 1
_REFUSED, _NO_COMMAND = 125, 127
_TEMPORARY = b"TMPDIR"


def main() -> None:
    """Run the command line. Ends the process with the command's exit code, or with 125 if a wall cannot be built."""
    environment = child_supervisor.environment_at_start()
    try:
        walls = Walls(sys.argv[1:])
        _confine(walls)
        _execute(walls, environment)
    except (OSError, ValueError) as error:
        os.write(2, f"sandbox: {error}\n".encode())
        os._exit(_REFUSED)


def _confine(walls: Walls) -> None:
    if walls.cgroup is not None:
        # While it is known by this path.
        join_cgroup(walls.cgroup)
    if walls.in_front:
        _stand_in_front(walls)
        return
    has_processes = walls.separate & NEW_PROCESSES and not walls.landlock_only
    _end_with_parent()
    if not walls.landlock_only:
        _separate(walls.separate)
        if has_processes:
            # Only children are in the new namespace.
            _continue_in_child()
        if not walls.network:
            open_loopback()
            if walls.listener >= 0:
                send_listener(walls.listener)
        mounts.enter(walls.operations)
    _give_up(walls)
    if has_processes:
        # The first process of a namespace ignores signals, and reaps what others leave: no work for the command.
        _continue_in_child()


def _stand_in_front(walls: Walls) -> None:
    """Put around bubblewrap what it has not itself. What it mounts must stay permitted."""
    _end_with_parent()
    if walls.listener >= 0:
        # Bubblewrap makes its other namespaces inside.
        _separate(NEW_NETWORK)
        open_loopback()
        send_listener(walls.listener)
    limit(walls.limits)
    rules = scopes()
    if rules is not None:
        forbid_new_privileges()
        rules.enforce()


def _separate(namespaces: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(namespaces if uid == 0 else namespaces | NEW_USERS)
    except OSError as error:
        raise OSError(error.errno, f"namespaces are not permitted: {error.strerror}") from error
    if uid == 0:
        return
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _give_up(walls: Walls) -> None:
    # Files are opened while that is still permitted.
    rules = ruleset_of(walls)
    os.chdir(walls.cwd)
    dropped = None if walls.drop_all else walls.dropped
    drop_bounds(dropped)
    if walls.guard:
        limit(walls.limits)
    if walls.uid is not None:
        become(walls.uid)
    drop_capabilities(dropped)
    forbid_new_privileges()
    # Becoming another user ended the first request for it.
    _end_with_parent()
    if walls.landlock_only and not os.access(walls.cwd, os.X_OK):
        raise PermissionError(
            f"user {os.geteuid()} cannot reach {walls.cwd!r}: let others pass the directories above it (chmod o+x)"
        )
    if rules is not None:
        rules.enforce()
    if walls.guard:
        # Without scopes a command would reach abstract sockets of the machine, whose network it has.
        filter_calls(
            network=walls.network,
            alone=walls.landlock_only,
            unix=not walls.network or landlock_version() >= SCOPES_SINCE,
        )


def _end_with_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)


def _continue_in_child() -> None:
    """Go on in a child. This process waits for it, holds nothing, and ends with its exit code."""
    # Before the child, which exchanges the root of both.
    null = os.open(os.devnull, os.O_RDWR)
    child = os.fork()
    if child == 0:
        _end_with_parent()
        return
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    ended = status = 0
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    os._exit(child_supervisor.exit_code(status))


def _execute(walls: Walls, environment: dict[bytes, bytes]) -> None:
    if walls.landlock_only and walls.guard:
        _move_temporary_files(walls, environment)
    if walls.new_session and os.getsid(0) != os.getpid():
        os.setsid()
    for number in child_supervisor.DEFAULT_AGAIN:
        _signal.signal(number, _signal.SIG_DFL)
    problem = "not found"
    # Not `os.execvpe`, which imports a module here: the files of Python may be out of reach by now.
    for path in _candidates(walls.command[0], os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))):
        try:
            os.execve(path, walls.command, environment)  # noqa: S606 - the command that the launcher is for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = error.strerror
    os.write(2, f"{walls.command[0]}: {problem}\n".encode())
    os._exit(_NO_COMMAND)


def _candidates(program: str, path: str) -> list[str]:
    if os.sep in program:
        return [program]
    return [os.path.join(folder, program) for folder in path.split(os.pathsep)]


def _move_temporary_files(walls: Walls, environment: dict[bytes, bytes]) -> None:
    """Put temporary files into the working directory: without mounts the command has no /tmp of its own."""
    writable = [operation.target for operation in walls.operations if operation.kind == "bind"]
    if not is_below(os.fsdecode(environment.get(_TEMPORARY, b"")), writable):
        environment[_TEMPORARY] = os.fsencode(walls.cwd)
