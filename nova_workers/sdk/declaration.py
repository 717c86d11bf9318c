"""The declaration of a function as a tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar, get_type_hints, overload

from nova_workers.base.errors import ConfigurationError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: Final = "__nova_tool__"
_DEFAULT_TIMEOUT_S: Final = 60.0
_MAX_TIMEOUT_S: Final = 3_600.0
_MAX_CONCURRENCY: Final = 1_000


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What a tool declares about its calls.

    Attributes:
        name: As models call it; None is the function's name.
        idempotent: Whether a call with an unknown outcome may be made again.
        read_only: Whether it changes nothing.
        needs_approval: Whether a person approves each call, unless a rule of the agent decides otherwise.
        timeout_s: Time limit of a call.
        concurrency: Most calls at once in one process; None is no limit of its own.
    """

    name: str | None = None
    idempotent: bool = False
    read_only: bool = False
    needs_approval: bool = False
    timeout_s: float = _DEFAULT_TIMEOUT_S
    concurrency: int | None = None


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    needs_approval: bool = False,
    timeout_s: float = _DEFAULT_TIMEOUT_S,
    concurrency: int | None = None,
) -> Callable[[_Function], _Function]: ...
def tool(
    function: _Function | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    needs_approval: bool = False,
    timeout_s: float = _DEFAULT_TIMEOUT_S,
    concurrency: int | None = None,
) -> _Function | Callable[[_Function], _Function]:
    """Declare a function, plain or async, as a tool. The function stays as it is, so that tests can call it.

    The types of its parameters become the schema of the tool's input, the first part of its docstring the description,
    and the section ``Args:`` the descriptions of the parameters. A parameter with the type `ToolContext` gets the
    context of the call, and is not part of the input.

    Args:
        function: The function, for ``@tool`` without arguments.
        name: As models call it; by default the function's name.
        idempotent: Whether a call with an unknown outcome may be made again, such as after a crash.
        read_only: Whether it changes nothing.
        needs_approval: Whether a person approves each call, unless a rule of the agent decides otherwise.
        timeout_s: Time limit of a call, at most an hour.
        concurrency: Most calls at once in one process.

    Raises:
        ConfigurationError: It is no function, or an option is out of range. The message begins with the place.
    """
    options = ToolOptions(name, idempotent, read_only, needs_approval, timeout_s, concurrency)

    def declare(declared: _Function) -> _Function:
        check_function(declared, "@tool")
        if not 0 < timeout_s <= _MAX_TIMEOUT_S:
            raise misdeclared(declared, f"timeout_s is {timeout_s!r}; expected seconds, at most {_MAX_TIMEOUT_S:g}")
        if concurrency is not None and not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise misdeclared(declared, f"concurrency is {concurrency!r}; expected 1 to {_MAX_CONCURRENCY}")
        mark(declared, _OPTIONS, options)
        return declared

    if function is None:
        return declare
    return declare(function)


def check_function(thing: Callable[..., Any], decorator: str) -> None:
    """Check that a decorator is on a function. Apart from its use, where it would narrow the type.

    Raises:
        ConfigurationError: It is no function.
    """
    if not inspect.isfunction(thing):
        raise ConfigurationError(f"{thing!r} is no function; {decorator} declares functions only.")


def check_parameters(function: Callable[..., Any], *forms: list[type], kind: str, expected: str) -> None:
    """Check that a function has the parameters of one of some forms, each of which can be given by its name.

    Args:
        function: A declared one.
        forms: The types of the parameters, in their order.
        kind: What it is declared as.
        expected: The forms, for people.

    Raises:
        ConfigurationError: It has others. The message begins with the place.
    """
    parameters = inspect.signature(function).parameters
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise misdeclared(function, f"its annotations cannot be read ({error}); {expected}", kind) from error
    is_named = all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters.values())
    if not is_named or [hints.get(name) for name in parameters] not in forms:
        raise misdeclared(function, f"its parameters are {inspect.signature(function)}; {expected}", kind)


_MARKED: Final[list[Callable[..., Any]]] = []
"""All declared functions of this process, also those whose names were given to another one since."""


def mark(function: Callable[..., Any], name: str, value: object) -> None:
    """Declare a function, by an attribute of it."""
    setattr(function, name, value)
    _MARKED.append(function)


def refuse_replaced(module: ModuleType) -> None:
    """Refuse a module in which a declared function replaced another one, which had its name.

    Raises:
        ConfigurationError: The message begins with the place of the later one.
    """
    bound = {id(thing) for thing in vars(module).values()}
    of_module = [each for each in _MARKED if each.__module__ == module.__name__ and "." not in each.__qualname__]
    for earlier in of_module:
        # A decorator around the declared function is no other one.
        later = next((each for each in of_module if each is vars(module).get(earlier.__name__)), None)
        if id(earlier) not in bound and later is not None:
            raise ConfigurationError(
                f"{place_of(later)}: {earlier.__name__!r} replaces the function of this name at {place_of(earlier)}; "
                "expected names that differ. Give one of them another."
            )


def options_of(thing: Any) -> ToolOptions | None:
    """Return the options of a function that is declared as a tool; None of anything else."""
    return getattr(thing, _OPTIONS, None) if inspect.isfunction(thing) else None


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is written, as ``file:line``."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def misdeclared(function: Callable[..., Any], problem: str, kind: str = "tool") -> ConfigurationError:
    """Return the error of a function that cannot be what it is declared as."""
    return ConfigurationError(f"{place_of(function)}: the {kind} {function.__name__!r}: {problem}.")
