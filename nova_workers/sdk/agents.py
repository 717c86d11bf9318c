"""The declaration of a function as an agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nova_workers.base.errors import ConfigurationError
from nova_workers.sdk.declaration import mark, misdeclared, place_of
from nova_workers.sdk.docstrings import read_docstring
from nova_workers.sdk.durable import Context, Message

_Function = TypeVar("_Function", bound=Callable[[Context, Message], Awaitable[Any]])

_MARK: Final = "__nova_agent__"
_PARAMETERS: Final = 2


@dataclass(frozen=True, slots=True)
class UserAgent:
    """A function that is an agent.

    Attributes:
        name: The function's.
        description: Its docstring.
        place: Where it is written, as ``file:line``.
        function: Executes a run.
    """

    name: str
    description: str
    place: str
    function: Callable[[Context, Message], Awaitable[Any]]


def agent(function: _Function) -> _Function:
    """Declare an async function as an agent: ``async def triage(ctx: Context, message: Message) -> Answer``.

    It is executed for each run of an agent whose configuration names it. It returns the answer: an `Answer` or text;
    any other value is the answer as JSON; None makes what it emitted since its last operation the answer.

    Raises:
        ConfigurationError: It is no async function of two parameters. The message begins with the place.
    """
    _check(function)
    mark(function, _MARK, True)
    return function


def _check(function: Callable[..., Any]) -> None:
    # Apart from its use, where it would narrow the type.
    if not inspect.isfunction(function):
        raise ConfigurationError(f"{function!r} is no function; @agent declares async functions only.")
    if not inspect.iscoroutinefunction(function):
        raise _misdeclared(function, "it is not async; expected 'async def'")
    if len(inspect.signature(function).parameters) != _PARAMETERS:
        raise _misdeclared(function, "expected two parameters, as in (ctx: Context, message: Message)")


def as_agent(thing: Any) -> UserAgent | None:
    """Return the agent that a thing of a module is declared as; None if it is none."""
    if not inspect.isfunction(thing) or not getattr(thing, _MARK, False):
        return None
    return UserAgent(thing.__name__, read_docstring(thing.__doc__).description, place_of(thing), thing)


def _misdeclared(function: Callable[..., Any], problem: str) -> ConfigurationError:
    return misdeclared(function, problem, "agent")
