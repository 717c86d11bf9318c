"""Code of users in a process of ours: its import, and the places in it at which something happened."""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.project_files import PACKAGES

PYTHON = sys.executable
"""What executes code of users."""
_OURS: Final = str(Path(__file__).resolve().parents[1])
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_SERVED: Final[set[str]] = set()
"""Files, and directories with a slash, of the packages that this process serves: among libraries, and yet of users. A
process serves one source."""


def serving_command(*options: str) -> tuple[str, ...]:
    """Return the command line of `nova_workers.sdk.serve`, to which a source is added."""
    # Without -P Python would look for modules in the working directory first.
    return (PYTHON, "-P", "-m", "nova_workers.sdk.serve", *options)


def served_module(name: str) -> str:
    """Return the name of a module of a package, whose files are from now on code of users."""
    try:
        spec = find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations:
        _SERVED.update(f"{folder}/" for folder in spec.submodule_search_locations)
    elif spec is not None and spec.origin is not None:
        _SERVED.add(spec.origin)
    return name


def import_code(name: str) -> ModuleType:
    """Return a module of users.

    Raises:
        ConfigurationError: It cannot be imported. The message begins with file and line where there are any.
    """
    try:
        return import_module(name)
    except (SystemExit, KeyboardInterrupt) as error:
        raise ConfigurationError(
            f"{raised_at(error) or name}: the module {name!r} ends the process in its import ({type(error).__name__}); "
            "expected a module that only defines things."
        ) from error
    except ConfigurationError as error:
        if str(error).startswith("/"):
            raise
        raise ConfigurationError(f"{raised_at(error) or name}: {error}") from error
    except BaseException as error:
        # Code of users may raise anything; nothing here goes on without it.
        raise ConfigurationError(
            f"{raised_at(error) or name}: the module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def ending_late_imports(source: str, within_s: float, end: Callable[[str], None]) -> Generator[None]:
    """Call `end` from another thread, with the place of the import, if the block takes longer than that.

    Args:
        source: What is imported.
        within_s: The longest time.
        end: Ends the process, since Python cannot end an import.
    """
    importing = threading.get_ident()

    def late() -> None:
        place = place_of_thread(importing)
        end(f"{place or source}: the import did not end within {within_s:g} s; expected one that returns.")

    timer = threading.Timer(within_s, late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def user_place(frame: FrameType | None) -> str | None:
    """Return the innermost place in code of users on a stack, as ``file:line``; the innermost of all without any."""
    innermost = None
    while frame is not None:
        file = frame.f_code.co_filename
        innermost = innermost or f"{file}:{frame.f_lineno}"
        if is_users(file):
            return f"{file}:{frame.f_lineno} in {frame.f_code.co_name}()"
        frame = frame.f_back
    return innermost


def place_of_thread(ident: int | None) -> str | None:
    """Return where a thread is now, as `user_place` has it."""
    # The only way to see another thread; documented, with the underscore as a warning about its use.
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - see above
    return user_place(frames.get(ident or 0))


def raised_at(error: BaseException) -> str | None:
    """Return the innermost place in code of users at which an error passed, as ``file:line``."""
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{each.filename}:{each.lineno}" for each in reversed(frames) if is_users(each.filename)), None)


def is_users(file: str) -> bool:
    """Return whether a file is code of users: not the standard library's, another package's or ours."""
    if any(file == root or (root.endswith("/") and file.startswith(root)) for root in _SERVED):
        return True
    is_ours = file.startswith(("<frozen ", _OURS)) or any(file.startswith(f"{root}/") for root in _LIBRARIES)
    return not is_ours and f"/{PACKAGES}/" not in file
