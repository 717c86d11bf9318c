"""Which system calls a command may not make."""

import ctypes
import errno
import os
import struct

from nova_workers.sandbox_launcher import assembler
from nova_workers.sandbox_launcher.kernel import call
from nova_workers.sandbox_launcher.numbers import ARCHITECTURES, number, numbers_of

_REFUSED = (
    # Other processes, and the kernel's view of them.
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("perf_event_open", "move_pages", "migrate_pages", "syslog", "lookup_dcookie"),
    # Mounts and namespaces.
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "setns", "open_by_handle_at", "fanotify_init"),
    *("quotactl", "quotactl_fd", "swapon", "swapoff", "acct", "nfsservctl"),
    # The kernel itself, and the machine.
    *("bpf", "userfaultfd", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("reboot", "sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "vhangup"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    # Keys of the worker's user.
    *("keyctl", "add_key", "request_key"),
    # Goes around this filter: the kernel makes the calls.
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
)
_NEW_NAMESPACES = 0x7E02_0080
"""``CLONE_NEW…`` of all kinds; the last is a signal's number in `clone`."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_RAW, _PACKET, _TYPE_BITS = 3, 10, 0xF

# What only namespaces would bound, and Landlock does not: files' modes, owners and times by path, names of files by
# notifications, System V's memory, and the priority and limits of other processes of the same user.
_WITHOUT_EFFECT = ("chmod", "fchmod", "fchmodat", "fchmodat2")
"""They succeed, since git, compilers and installers fail otherwise where they need not."""
_REFUSED_ALONE = (
    *("chown", "lchown", "fchown", "fchownat", "inotify_add_watch", "file_setattr"),
    *("utime", "utimes", "futimesat"),
    *(
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "setxattrat",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
        "removexattrat",
    ),
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink"),
)
_OF_ITSELF = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
"""Their first argument is a process; 0 is the caller."""

_SET_MODE_FILTER = 1


def program(machine: str, *, network: bool, alone: bool, unix: bool = True) -> bytes:
    """Return the filter.

    Args:
        machine: The machine that it is for.
        network: Whether commands reach the network. In a network of its own a command may make sockets all the same.
        alone: Whether no namespaces stand beside it.
        unix: Whether a command may make Unix sockets, if namespaces stand beside it.

    Raises:
        ValueError: There is none for this machine.
    """
    if machine not in ARCHITECTURES:
        raise ValueError(f"there is no filter of system calls for {machine!r}")
    known = numbers_of(machine)
    refused = assembler.refuse(errno.EPERM)
    blocks = [assembler.opening(ARCHITECTURES[machine])]
    blocks += [assembler.deny(known[name], refused) for name in _REFUSED if name in known]
    blocks += [
        # Its flags are in memory, which a filter cannot read. Libraries then use `clone`.
        assembler.deny(known["clone3"], assembler.refuse(errno.ENOSYS)),
        assembler.deny_bits(known["clone"], 0, _NEW_NAMESPACES & ~0xFF, refused),
        assembler.deny_bits(known["unshare"], 0, _NEW_NAMESPACES, refused),
        assembler.deny_values(known["ioctl"], 1, (_TIOCSTI, _TIOCLINUX), refused),
        *_sockets(known["socket"], network=network, alone=alone, unix=unix),
    ]
    if alone:
        blocks += _alone(known)
    return b"".join((*blocks, assembler.allow()))


def filter_calls(*, network: bool, alone: bool, unix: bool) -> None:
    """Filter the calls of this process and of its children, for ever. It must have given up new privileges.

    Raises:
        OSError: The kernel has no filters.
        ValueError: There is no filter for this machine.
    """
    code = program(os.uname().machine, network=network, alone=alone, unix=unix)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    call(number("seccomp"), _SET_MODE_FILTER, 0, ctypes.create_string_buffer(head, len(head)))


def _sockets(socket: int, *, network: bool, alone: bool, unix: bool) -> list[bytes]:
    unknown = assembler.refuse(errno.EAFNOSUPPORT)
    if alone and not network:
        return [assembler.deny(socket, unknown)]
    # Other families have no namespaces, such as those to a hypervisor, or much code and few users. Unix sockets are
    # named by files, and Landlock does not keep a command from connecting to them.
    families = (_INET, _INET6, _NETLINK, *(() if alone or not unix else (_UNIX,)))
    raw = assembler.deny_values(
        socket, 1, (_RAW, _PACKET), assembler.refuse(errno.EPERM), mask=_TYPE_BITS, spared=(0, _NETLINK)
    )
    return [assembler.deny_unless(socket, 0, families, unknown), raw]


def _alone(known: dict[str, int]) -> list[bytes]:
    refused = assembler.refuse(errno.EPERM)
    nothing = assembler.refuse(0)
    return [
        *(assembler.deny(known[name], nothing) for name in _WITHOUT_EFFECT if name in known),
        *(assembler.deny(known[name], refused) for name in _REFUSED_ALONE if name in known),
        *(assembler.deny_unless(known[name], 0, (0,), refused) for name in _OF_ITSELF),
        # Of an open file it has no effect; by a path it fails, as `touch` takes success for a file that is there.
        assembler.deny_values(known["utimensat"], 1, (0,), nothing),
        assembler.deny(known["utimensat"], refused),
        # Of a process, and of the caller.
        assembler.deny_unless(known["setpriority"], 0, (0,), refused),
        assembler.deny_unless(known["setpriority"], 1, (0,), refused),
        assembler.deny_unless(known["ioprio_set"], 0, (1,), refused),
        assembler.deny_unless(known["ioprio_set"], 1, (0,), refused),
    ]
