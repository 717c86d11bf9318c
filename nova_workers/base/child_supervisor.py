"""Runs one command, and ends all its processes with the command, at SIGTERM, or with the process that requested it.

    python -I -S -B child_supervisor.py PARENT_PID GRACE_S own|shared COMMAND…

A script that imports nothing of ours and little of the standard library: 10 ms of CPU. Linux only.

The supervisor is a *subreaper*: every process of the command stays its descendant, also one that leaves its process
group and session, clears its environment or loses its parents. So a walk over descendants finds all of them, and "no
child left" means that none is left. It ends all descendants when

- the command ended: with the command's exit code, or 128 and the number of the signal that ended it;
- SIGTERM came: after GRACE_S, in which the command may end by itself;
- the parent ended, for any reason: a descriptor of the parent process shows it. The kernel's death signal would not do
  for that: it comes when the *thread* that started the child ends.

The command leads a session of its own (``own``), so that it cannot signal the supervisor with its group, or is in the
supervisor's group (``shared``), so that who signals that group reaches both.
"""

# Not the module `signal`, whose enumerations take 4 ms.
import _signal  # pyright: ignore[reportMissingImports] - it has no stub
import ctypes
import os
import select
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_MS = 500
"""How often to look for the parent where the kernel has no descriptors of processes (before 5.3)."""
_LONGEST_PAUSE_S = 1.0
DEFAULT_AGAIN = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTERM, _signal.SIGCHLD, _signal.SIGINT)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def main() -> int:
    """Run the command; return the exit code."""
    parent, grace_s, group, *command = sys.argv[1:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    _signal.set_wakeup_fd(write_end)
    for number in (_signal.SIGTERM, _signal.SIGCHLD):
        _signal.signal(number, _note)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    leader = os.fork()
    if leader == 0:
        _become(command, own_session=group == "own")
    _close_descriptors({read_end, write_end})
    status = _watch(leader, int(parent), float(grace_s), read_end)
    end_descendants()
    return 1 if status is None else exit_code(status)


def _note(*_: object) -> None:
    """Do nothing: the signal is read from the wakeup descriptor."""


def _become(command: list[str], *, own_session: bool) -> None:
    try:
        _prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
        _signal.set_wakeup_fd(-1)
        for number in DEFAULT_AGAIN:
            _signal.signal(number, _signal.SIG_DFL)
        if own_session:
            os.setsid()
        os.execvpe(command[0], command, environment_at_start())  # noqa: S606 - the command that the supervisor is for
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def environment_at_start() -> dict[bytes, bytes]:
    """Return the environment as it was given: Python adds LC_CTYPE to that of the process."""
    with open("/proc/self/environ", "rb") as file:
        variables = file.read().split(b"\0")
    return dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)


def _close_descriptors(kept: set[int]) -> None:
    """Close the command's descriptors in this process, so that the other ends see when the command closes them."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def _watch(leader: int, parent: int, grace_s: float, wakeups: int) -> int | None:
    """Return the leader's status as soon as it ended; None when it is to be ended."""
    poll = select.poll()
    poll.register(wakeups, select.POLLIN)
    try:
        parent_fd = os.pidfd_open(parent)
        poll.register(parent_fd, select.POLLIN)
    except OSError:
        parent_fd = -1
    deadline_s: float | None = None
    while True:
        status = _reap(leader)
        if status is not None or os.getppid() != parent:
            return status
        if deadline_s is not None and time.monotonic() >= deadline_s:
            return None
        left_ms = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0) * 1000
        if parent_fd < 0:
            left_ms = _POLL_MS if left_ms is None else min(left_ms, _POLL_MS)
        ready = [descriptor for descriptor, _ in poll.poll(left_ms)]
        if parent_fd in ready:
            return None
        if wakeups in ready and _signal.SIGTERM in os.read(wakeups, 4096) and deadline_s is None:
            deadline_s = time.monotonic() + grace_s


def _reap(leader: int) -> int | None:
    """Take the status of all children that ended; return the leader's, if it is among them."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == leader:
            found = status


def end_descendants() -> None:
    """Kill all descendants of this process; return when none is left.

    Each is stopped before the next look: what stands still starts nothing, so the last look finds all.
    """
    pause_s = 0.001
    while _has_children():
        found: set[int] = set()
        while fresh := _descendants(os.getpid()) - found:
            for pid in fresh:
                _send(pid, _signal.SIGSTOP)
            found |= fresh
        for pid in found:
            _send(pid, _signal.SIGKILL)
        time.sleep(pause_s)
        # What belongs to another user, or hangs in the kernel, is waited for.
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _has_children() -> bool:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in parentheses may hold anything; state and parent follow the last of them.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    ahead = [root]
    while ahead:
        fresh = children.get(ahead.pop(), [])
        found.update(fresh)
        ahead += fresh
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def exit_code(status: int) -> int:
    """Return the exit code for a status of a child: 128 and the number of the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main())
