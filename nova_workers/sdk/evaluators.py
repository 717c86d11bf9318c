"""The declaration of a function as an evaluator: what judges the answers of an evaluation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final, TypeVar, overload

from nova_workers.base.errors import ConfigurationError, ToolFailure
from nova_workers.contracts.judged_answers import JudgedAnswer, Judgement
from nova_workers.sdk.declaration import ToolOptions, check_function, check_parameters, mark, misdeclared
from nova_workers.sdk.docstrings import read_docstring
from nova_workers.sdk.signatures import FunctionTool

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: Final = "__nova_evaluator__"
_DEFAULT_TIMEOUT_S: Final = 10.0
_MAX_TIMEOUT_S: Final = 30.0
"""A few answers at once are judged within the time that a worker claims them for."""
_EXPECTED: Final = "expected (answer: JudgedAnswer)"


@overload
def evaluator(function: _Function, /) -> _Function: ...
@overload
def evaluator(*, timeout_s: float = _DEFAULT_TIMEOUT_S) -> Callable[[_Function], _Function]: ...
def evaluator(
    function: _Function | None = None, /, *, timeout_s: float = _DEFAULT_TIMEOUT_S
) -> _Function | Callable[[_Function], _Function]:
    """Declare a function, plain or async, as an evaluator: ``def polite(answer: JudgedAnswer) -> bool``.

    It returns a `Judgement`, a bool, or a number from 0 to 1. It may be called again for the same answer, such as after
    a crash. What it raises, and any other value, leaves the answer not judged.

    Args:
        function: The function, for ``@evaluator`` without arguments.
        timeout_s: Time limit of a call, at most half a minute.

    Raises:
        ConfigurationError: It cannot be one. The message begins with the place, and says what was expected.
    """
    options = ToolOptions(idempotent=True, read_only=True, timeout_s=timeout_s)

    def declare(declared: _Function) -> _Function:
        check_function(declared, "@evaluator")
        if not 0 < timeout_s <= _MAX_TIMEOUT_S:
            raise _misdeclared(declared, f"timeout_s is {timeout_s!r}; expected seconds, at most {_MAX_TIMEOUT_S:g}")
        mark(declared, _OPTIONS, options)
        return declared

    return declare if function is None else declare(function)


def as_evaluator(thing: Any) -> FunctionTool | None:
    """Return the evaluator that a thing of a module is declared as, in the form of a tool; None if it is none.

    Its calls return a `Judgement`.

    Raises:
        ConfigurationError: Its signature is not that of an evaluator.
    """
    options: ToolOptions | None = getattr(thing, _OPTIONS, None) if inspect.isfunction(thing) else None
    if options is None:
        return None
    check_parameters(thing, [JudgedAnswer], kind="evaluator", expected=_EXPECTED)
    if not read_docstring(thing.__doc__).description:
        raise _misdeclared(thing, "it has no docstring; expected one that says what it judges")
    tool = FunctionTool.of(thing, options)
    return replace(tool, function=_judging_async(thing) if tool.is_async else _judging(thing))


def judgement_of(value: Any) -> Judgement:
    """Return the judgement that an evaluator said.

    Raises:
        ToolFailure: It is nothing that an evaluator may say.
    """
    if isinstance(value, Judgement):
        return value
    if isinstance(value, bool):
        return Judgement(score=float(value), passed=value)
    if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1:
        return Judgement(score=float(value))
    raise ToolFailure(
        f"It returned {value!r:.100}, of type {type(value).__name__}; expected a Judgement, a bool, or a number from 0 "
        "to 1"
    )


def _judging(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def judge(**given: Any) -> Judgement:
        return judgement_of(function(**given))

    return judge


def _judging_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def judge(**given: Any) -> Judgement:
        return judgement_of(await function(**given))

    return judge


def _misdeclared(function: Callable[..., Any], problem: str) -> ConfigurationError:
    return misdeclared(function, problem, "evaluator")
