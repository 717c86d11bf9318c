"""A skewed wall clock for one process, by a preloaded C library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t skew(void) {
    const char *given = getenv("WRONG_CLOCK_S");
    return given ? atol(given) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
"""
_TELL = "import datetime, time; print(time.time()); print(datetime.datetime.now().timestamp())"


def can_skew_clocks() -> bool:
    """Return whether this machine can build the library: it needs a C compiler, on Linux."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def skewed_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a process with a wrong wall clock. Skips the test if it cannot be built.

    Args:
        folder: Where the library goes.
        seconds: How far it is ahead.
    """
    library = folder / "skewed_clock.so"
    if not can_skew_clocks():
        pytest.skip("a wrong clock needs a C compiler, on Linux")
    if not library.exists():
        source = folder / "skewed_clock.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    env = {"LD_PRELOAD": str(library), "WRONG_CLOCK_S": str(seconds)}
    right, wrong = [
        [float(line) for line in subprocess.check_output([sys.executable, "-c", _TELL], env=given).split()]
        for given in ({}, env)
    ]
    assert all(abs(told - true - seconds) < 60 for true, told in zip(right, wrong, strict=True)), (right, wrong)
    return env
