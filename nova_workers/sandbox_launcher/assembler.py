"""Writes filters of system calls, in the kernel's BPF.

A filter loads the number of the call once, and each judgement compares it. Jumps reach 255 instructions forward, so a
judgement is a short block that is skipped as a whole, and that loads the number again if it changed the register.
"""

import struct

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_BITS = 0x15, 0x35, 0x45
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_FIRST_OF_X32 = 0x4000_0000
"""Calls of the x32 ABI have numbers from here, and the architecture of x86_64."""
ALLOW, KILL = 0x7FFF_0000, 0x8000_0000
_ERRNO = 0x0005_0000


def refuse(error: int) -> int:
    """Return the verdict that a call fails with an error number; with 0 it succeeds without effect."""
    return _ERRNO | error


def opening(architecture: int) -> bytes:
    """End processes that call by another architecture's numbers, and load the number of the call."""
    return b"".join(
        (
            _one(_LOAD, _ARCHITECTURE_AT),
            _one(_IF_EQUAL, architecture, 1, 0),
            _one(_RETURN, KILL),
            _one(_LOAD, _NUMBER_AT),
            _one(_IF_AT_LEAST, _FIRST_OF_X32, 0, 1),
            _one(_RETURN, KILL),
        )
    )


def allow() -> bytes:
    """Allow what is left."""
    return _one(_RETURN, ALLOW)


def deny(call: int, verdict: int) -> bytes:
    """Give a call a verdict."""
    return _one(_IF_EQUAL, call, 0, 1) + _one(_RETURN, verdict)


def deny_bits(call: int, argument: int, bits: int, verdict: int) -> bytes:
    """Give a call a verdict if an argument has any of some bits."""
    return _judge(call, argument, (_one(_IF_BITS, bits, 0, 1), _one(_RETURN, verdict)))


def deny_values(
    call: int,
    argument: int,
    values: tuple[int, ...],
    verdict: int,
    *,
    mask: int = 0xFFFF_FFFF,
    spared: tuple[int, int] | None = None,
) -> bytes:
    """Give a call a verdict if an argument, after a mask, is one of some values.

    Args:
        call: Its number.
        mask: The bits that count.
        spared: An argument and its value with which there is no verdict.
    """
    last = len(values) - 1
    # From a match to the verdict; from the last mismatch over it.
    tests = [_one(_IF_EQUAL, value, last - place, 0 if place < last else 1) for place, value in enumerate(values)]
    body = [_one(_AND, mask), *tests, _one(_RETURN, verdict)]
    if spared is not None:
        other, value = spared
        body[:0] = [_load(other), _one(_IF_EQUAL, value, len(body) + 1, 0), _load(argument)]
    return _judge(call, argument, tuple(body))


def deny_unless(call: int, argument: int, values: tuple[int, ...], verdict: int) -> bytes:
    """Give a call a verdict unless an argument is one of some values."""
    count = len(values)
    tests = [_one(_IF_EQUAL, value, count - place, 0) for place, value in enumerate(values)]
    return _judge(call, argument, (*tests, _one(_RETURN, verdict)))


def _judge(call: int, argument: int, body: tuple[bytes, ...]) -> bytes:
    # The low half of the argument: the kernel ignores the other of those that are judged, as they are ints there.
    block = (_load(argument), *body, _one(_LOAD, _NUMBER_AT))
    return b"".join((_one(_IF_EQUAL, call, 0, len(block)), *block))


def _load(argument: int) -> bytes:
    return _one(_LOAD, _ARGUMENTS_AT + 8 * argument)


def _one(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)
