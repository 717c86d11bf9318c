"""The filter of system calls, run by an interpreter of BPF: what it answers to each call, also on another machine."""

from __future__ import annotations

import errno
import struct
from typing import Literal

import pytest

from nova_workers.sandbox_launcher import rules
from nova_workers.sandbox_launcher.calls import program
from nova_workers.sandbox_launcher.numbers import ARCHITECTURES, numbers_of
from nova_workers.sandbox_launcher.walls import Walls
from tests.requirements import proves

_EPERM, _ENOSYS, _FAMILY = errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT
_UNIX, _INET, _NETLINK, _VSOCK = 1, 2, 16, 40
_STREAM, _RAW, _NONBLOCK = 1, 3, 0o4000
_THREAD, _FORK, _NEW_USERS, _NEW_NETWORK = 0x003D_0F00, 17, 0x1000_0000, 0x4000_0000

_Verdict = int | Literal["kill"] | None


def _verdict(
    code: bytes, architecture: int, call: int, arguments: tuple[int, ...] = ()
) -> int | Literal["kill"] | None:
    """Return the error that a filter gives a call (0: it has no effect); None if it is allowed."""
    data = struct.pack("=IIQ6Q", call, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    register, place = 0, 0
    while True:
        kind, if_so, if_not, value = struct.unpack_from("=HBBI", code, place * 8)
        place += 1
        match kind:
            case 0x20:
                register = struct.unpack_from("=I", data, value)[0]
            case 0x54:
                register &= value
            case 0x15:
                place += if_so if register == value else if_not
            case 0x35:
                place += if_so if register >= value else if_not
            case 0x45:
                place += if_so if register & value else if_not
            case 0x06:
                action = value & 0xFFFF_0000
                return "kill" if action == 0x8000_0000 else None if action == 0x7FFF_0000 else value & 0xFFFF
            case _:
                raise AssertionError(f"unknown instruction {kind:#x}")


@pytest.mark.parametrize("machine", ARCHITECTURES)
@proves("engine.sandbox")
def test_the_filter_answers_each_call_on_each_machine(machine: str) -> None:
    calls, architecture = numbers_of(machine), ARCHITECTURES[machine]
    beside = program(machine, network=True, alone=False)
    alone = program(machine, network=True, alone=True)
    mute = program(machine, network=False, alone=True)

    def answers(name: str, *arguments: int) -> tuple[_Verdict, ...]:
        return tuple(_verdict(code, architecture, calls[name], arguments) for code in (beside, alone, mute))

    for name in ("ptrace", "mount", "umount2", "bpf", "keyctl", "io_uring_setup", "pidfd_getfd", "setns", "fsopen"):
        assert answers(name) == (_EPERM,) * 3, name
    assert answers("clone3") == (_ENOSYS,) * 3
    assert answers("clone", _FORK) == answers("clone", _THREAD) == (None,) * 3
    assert answers("clone", _FORK | _NEW_USERS) == answers("unshare", _NEW_NETWORK) == (_EPERM,) * 3
    assert answers("unshare", 0x400) == (None,) * 3
    assert answers("ioctl", 0, 0x5412) == (_EPERM,) * 3
    assert answers("ioctl", 0, 0x5401) == (None,) * 3
    assert answers("socket", _UNIX, _STREAM) == (None, _FAMILY, _FAMILY)
    assert answers("socket", _INET, _STREAM | _NONBLOCK) == (None, None, _FAMILY)
    assert answers("socket", _INET, _RAW | _NONBLOCK) == (_EPERM, _EPERM, _FAMILY)
    assert answers("socket", _NETLINK, _RAW) == (None, None, _FAMILY)
    assert answers("socket", _VSOCK, _STREAM) == (_FAMILY,) * 3
    scopeless = program(machine, network=True, alone=False, unix=False)
    assert _verdict(scopeless, architecture, calls["socket"], (_UNIX, _STREAM)) == _FAMILY
    assert answers("fchmodat", 0, 1) == (None, 0, 0)
    assert answers("fchownat") == answers("setxattr") == answers("shmget") == (None, _EPERM, _EPERM)
    assert answers("utimensat", 3, 0) == (None, 0, 0)
    assert answers("utimensat", 3, 4096) == (None, _EPERM, _EPERM)
    assert answers("prlimit64", 0) == answers("setpriority", 0, 0) == answers("ioprio_set", 1, 0) == (None,) * 3
    assert (
        answers("prlimit64", 7) == answers("setpriority", 2, 0) == answers("ioprio_set", 1, 7) == (None, _EPERM, _EPERM)
    )


@pytest.mark.parametrize("machine", ARCHITECTURES)
@proves("engine.sandbox")
def test_a_call_by_the_numbers_of_another_architecture_ends_the_process(machine: str) -> None:
    code = program(machine, network=True, alone=False)
    for other in (0x4000_0003, *(value for name, value in ARCHITECTURES.items() if name != machine)):
        assert _verdict(code, other, 1) == "kill"
    assert _verdict(code, ARCHITECTURES[machine], 0x4000_0000 + 1) == "kill"
    assert _verdict(code, ARCHITECTURES[machine], 1) is None


def test_a_machine_without_a_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="'riscv64'"):
        program("riscv64", network=True, alone=False)


@pytest.mark.parametrize(("known", "shown"), [(0, "has none"), (5, "has 5")])
def test_landlock_that_lets_signals_out_does_not_stand_alone(
    monkeypatch: pytest.MonkeyPatch, known: int, shown: str
) -> None:
    monkeypatch.setattr(rules, "version", lambda: known)
    with pytest.raises(ValueError, match=shown):
        rules.ruleset_of(Walls(["--landlock-only", "--guard", "--", "true"]))
    if not known:
        assert rules.ruleset_of(Walls(["--guard", "--", "true"])) is None


def test_an_option_that_the_launcher_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="'--seccomp'"):
        Walls(["--seccomp", "10", "--", "true"])
