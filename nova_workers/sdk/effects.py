"""The declaration of a function as an effect: what follows the runs of a fleet."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.ended_runs import EndedRun
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions, check_function, check_parameters, mark, misdeclared
from nova_workers.sdk.docstrings import read_docstring
from nova_workers.sdk.signatures import FunctionTool

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: Final = "__nova_effect__"
_DEFAULT_TIMEOUT_S: Final = 30.0
_MAX_TIMEOUT_S: Final = 60.0
"""A call stays with it, and the start of its process, within the time that a worker gives an effect."""
_DEFAULT_CONCURRENCY: Final = 4
_MAX_CONCURRENCY: Final = 100
_EXPECTED: Final = "expected (run: EndedRun) or (run: EndedRun, context: ToolContext)"


@overload
def effect(function: _Function, /) -> _Function: ...
@overload
def effect(
    *, timeout_s: float = _DEFAULT_TIMEOUT_S, concurrency: int = _DEFAULT_CONCURRENCY
) -> Callable[[_Function], _Function]: ...
def effect(
    function: _Function | None = None,
    /,
    *,
    timeout_s: float = _DEFAULT_TIMEOUT_S,
    concurrency: int = _DEFAULT_CONCURRENCY,
) -> _Function | Callable[[_Function], _Function]:
    """Declare a function, plain or async, as an effect: ``def log_run(run: EndedRun, context: ToolContext) -> None``.

    It is called for each run that ended, at least once: again after a crash, and with growing pauses after an error.
    ``context.idempotency_key`` is the same each time. What it returns is dropped.

    Args:
        function: The function, for ``@effect`` without arguments.
        timeout_s: Time limit of a call, at most a minute.
        concurrency: Most calls at once in one worker.

    Raises:
        ConfigurationError: It cannot be one. The message begins with the place, and says what was expected.
    """
    options = ToolOptions(timeout_s=timeout_s, concurrency=concurrency)

    def declare(declared: _Function) -> _Function:
        check_function(declared, "@effect")
        if not 0 < timeout_s <= _MAX_TIMEOUT_S:
            raise _misdeclared(declared, f"timeout_s is {timeout_s!r}; expected seconds, at most {_MAX_TIMEOUT_S:g}")
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise _misdeclared(declared, f"concurrency is {concurrency!r}; expected 1 to {_MAX_CONCURRENCY}")
        mark(declared, _OPTIONS, options)
        return declared

    return declare if function is None else declare(function)


def as_effect(thing: Any) -> FunctionTool | None:
    """Return the effect that a thing of a module is declared as, in the form of a tool; None if it is none.

    Raises:
        ConfigurationError: Its signature is not that of an effect.
    """
    options: ToolOptions | None = getattr(thing, _OPTIONS, None) if inspect.isfunction(thing) else None
    if options is None:
        return None
    check_parameters(thing, [EndedRun], [EndedRun, ToolContext], kind="effect", expected=_EXPECTED)
    if not read_docstring(thing.__doc__).description:
        raise _misdeclared(thing, "it has no docstring; expected one that tells operators what it does")
    return FunctionTool.of(thing, options)


def _misdeclared(function: Callable[..., Any], problem: str) -> ConfigurationError:
    return misdeclared(function, problem, "effect")
