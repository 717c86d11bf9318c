"""Start and end of our programs: Ctrl-C outside the main part, and standard streams that cannot be written."""

import errno
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import Any, TextIO

EXIT_INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""

_EXIT_NO_READER = 128 + signal.SIGPIPE

_STDIN, _STDOUT, _STDERR = 0, 1, 2


_PYTHON_THRESHOLDS = gc.get_threshold()

_ALLOCATIONS_PER_COLLECTION = 10_000
"""Python's own 700 makes it walk all modules several times while they are imported: a tenth of the CPU of a start."""


_PYDANTIC_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"

_WITHOUT = {
    # Formats tracebacks for developers; our logs have their own format. Threads of gevent, which we do not have.
    "structlog": ("rich", "greenlet"),
    # Metrics of the client, which nothing switches on; checks whether a server's certificate was revoked, which only
    # its synchronous client has, and no URL switches on.
    "redis": ("opentelemetry.sdk.metrics", "cryptography"),
    # Reloads the program when its source changes.
    "uvicorn": ("watchfiles",),
    # Another transport than the one that we use: 8 MB.
    "anthropic": ("aiohttp",),
    # For each route FastAPI looks whether its types are models of pydantic 1, which it refuses.
    "api.app": ("pydantic.v1",),
    "nova_workers.api.app": ("pydantic.v1",),
}
"""Libraries, and what they import if it is installed. All handle its absence."""


class OutputFailed(Exception):
    """Stdout cannot be written; `__cause__` is the operating system's error. Raised once: what follows is dropped."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output could not be written: {error.strerror}.")
        self.errno = error.errno


def leave_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback.

    For the moments in which a `KeyboardInterrupt` would break an import in half, or come after everything that could
    handle it. A process that ignores Ctrl-C, as a background job does, keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def finish_loading() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`, and Python look for garbage: what the program needs is imported.

    Changes nothing in a process that `run_program` did not start.
    """
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def collect_seldom() -> None:
    """Let Python look for garbage in cycles less often. For the fleet and its commands, before their imports."""
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION, *gc.get_threshold()[1:])


def collect_as_usual() -> None:
    """Let Python look for garbage as often as it does by itself. For a process that makes much of it in cycles."""
    gc.set_threshold(*_PYTHON_THRESHOLDS)


def exclude_from_collections() -> None:
    """Exclude what exists now from all later collections. For a process that has started: its modules stay."""
    gc.collect()
    gc.freeze()


def import_sparingly(*libraries: str) -> None:
    """Import libraries that import optional packages wherever these are installed as if they were not.

    For the fleet's processes, before all other imports: 14 MB and 0.2 s of CPU in each. Any other name is left alone.
    """
    for library in libraries:
        if library not in _WITHOUT or library in sys.modules or find_spec(library) is None:
            continue
        hidden = [name for name in _WITHOUT[library] if name not in sys.modules]
        # Python's way to say that a module is missing.
        missing: dict[str, Any] = dict.fromkeys(hidden)
        sys.modules.update(missing)
        try:
            importlib.import_module(library)
        finally:
            for name in hidden:
                del sys.modules[name]


@contextmanager
def importing() -> Generator[None]:
    """Import modules in the block: no collection walks them, now or later.

    With the modules of an SDK a collection takes 80 ms (measured), in which the whole process stands still. Garbage in
    cycles that exists at the end stays for good. So nothing is excluded if the block raises: it may be tried often.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def without_pydantic_plugins() -> Generator[None]:
    """Let pydantic build its first model in the block without plugins, which no command of ours needs.

    To find them it reads the metadata of every installed package, in 15 ms.
    """
    before = os.environ.get(_PYDANTIC_PLUGINS)
    os.environ[_PYDANTIC_PLUGINS] = "__all__"
    try:
        yield
    finally:
        # Child processes have their own.
        if before is None:
            del os.environ[_PYDANTIC_PLUGINS]
        else:
            os.environ[_PYDANTIC_PLUGINS] = before


def guard_streams() -> None:
    """Make a stdout that cannot be written raise `OutputFailed`, and drop what a stderr does not take.

    A stream that was closed when the process began is there afterwards: writes to stdout fail, stdin is empty.
    """
    for number in (_STDIN, _STDOUT, _STDERR):
        _ensure_open(number)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where it was closed at the start
        sys.stdin = open(_STDIN, encoding="utf-8", closefd=False)
    sys.stdout = _guarded(sys.stdout, _STDOUT)
    sys.stderr = _guarded(sys.stderr, _STDERR)


def run_program(module: str, *libraries: str) -> None:
    """Import a module and call its `main`, which calls `finish_loading` when it has imported what it needs.

    Ctrl-C ends the process at once before that and after `main`. A failed write to stdout raises `OutputFailed`.

    Args:
        module: It has the function `main`.
        libraries: Those that it uses and `import_sparingly` knows.
    """
    leave_on_interrupt()
    guard_streams()
    collect_seldom()
    # Collections while modules are imported find nothing: a tenth of the CPU of a short command.
    gc.disable()
    try:
        import_sparingly(*libraries)
        importlib.import_module(module).main()
    finally:
        leave_on_interrupt()
        # Else the interpreter walks all modules several times when it ends: another tenth.
        gc.freeze()


@contextmanager
def exit_on_failed_output(name: str) -> Generator[None]:
    """Run a program's body and flush stdout; exit with 1 and a line on stderr, or 141 if the reader left."""
    try:
        try:
            yield
        finally:
            # The buffered rest is the last write that can fail.
            sys.stdout.flush()
    except OutputFailed as error:
        if error.errno == errno.EPIPE:
            sys.exit(_EXIT_NO_READER)
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(1)


class _GuardedFile(io.FileIO):
    """A standard stream. After its first failed write it takes everything, so that nothing fails again at exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._failed = False

    def write(self, data: Any, /) -> int:
        if not self._failed:
            try:
                return super().write(data)
            except OSError as error:
                self._failed = True
                if self.fileno() == _STDOUT:
                    raise OutputFailed(error) from error
        return memoryview(data).nbytes


def _guarded(stream: TextIO | None, number: int) -> io.TextIOWrapper:
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_GuardedFile(number)),
        encoding=stream.encoding if stream is not None else "utf-8",
        # A terminal that cannot show a character shows a mark; it does not end the answer.
        errors="replace",
        line_buffering=number == _STDERR or os.isatty(number),
    )


def _ensure_open(number: int) -> None:
    """Open a closed descriptor on nothing: the next file or socket would get its number, and what is printed."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_WRONLY if number == _STDERR else os.O_RDONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
