"""Commands that talk to the API: each gets ``--json``, ``--api-url`` and ``--api-key``, and a `Session`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeGuard, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import InvalidInput, Unauthenticated
from nova_workers.base.home import home_folder
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.target import Target, find_target, read_settings
from nova_workers.cli.terminal.output import JsonOption, Output

if TYPE_CHECKING:
    from nova_workers.base.config import Settings
    from nova_workers.client.client import NovaClient

ApiUrlOption = Annotated[
    str | None,
    typer.Option("--api-url", envvar="NOVA_API_URL", show_envvar=True, help="The API. Default: what `nova up` runs."),
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="NOVA_API_KEY",
        show_envvar=True,
        help="The key. Default: your session of `nova login`, else the first key of `nova up`.",
    ),
]

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
Body = Callable[Concatenate["Session", P], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Session:
    """The client and the output of a command, and NOVA_HOME."""

    client: NovaClient
    out: Output
    target: Target
    home: Path

    @property
    def settings(self) -> Settings:
        """The settings, which are read now."""
        return read_settings()


@asynccontextmanager
async def open_session(*, json_mode: bool, api_url: str | None, api_key: str | None) -> AsyncGenerator[Session]:
    """Find the fleet, and open a client for it.

    Raises:
        ConfigurationError: The URL or a file of NOVA_HOME cannot be used.
    """
    home = home_folder()
    target = find_target(home, api_url=api_url, api_key=api_key)
    async with target.client() as client:
        try:
            yield Session(client, Output(json_mode=json_mode), target, home)
        except Unauthenticated as error:
            raise Unauthenticated(f"{error.message} (The key: {target.key_source}.)", **error.fields) from error


def build(model: type[M], values: Mapping[str, Any]) -> M:
    """Build a request body from the user's values.

    Raises:
        InvalidInput: A value has the wrong form; the message names each.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(
            f"{place_of(item) or 'input'}: {problem_of(item, model)} (got {item['input']!r:.80})"
            for item in error.errors()
        )
        raise InvalidInput(wrong) from error


def given(**values: object) -> dict[str, Any]:
    """Return the values that the user gave: those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def changes(hint: str, **values: object) -> dict[str, Any]:
    """Return the values that the user gave, of which there is one at least.

    Raises:
        InvalidInput: None is given; the hint says what can be.
    """
    if not (changed := given(**values)):
        raise InvalidInput(f"Nothing to change: give {hint}.")
    return changed


def remote(app: typer.Typer, name: str, **settings: Any) -> Callable[[Body[P]], Body[P]]:
    """Register an async function as a command of `app`, whose first argument is the session.

    Its docstring is the command's help, unless the settings have one. A parameter that is a dataclass stands for its
    fields: options that several commands share. The three common options are added after its own.
    """

    def register(body: Body[P]) -> Body[P]:
        app.command(name, **settings)(_entry(body))
        return body

    return register


def _entry(body: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    # The body's parameters without the session.
    own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    groups = {parameter.name: parameter.annotation for parameter in own if _is_group(parameter.annotation)}

    def entry(json_mode: bool, api_url: str | None, api_key: str | None, **given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})

        async def run() -> None:
            async with open_session(json_mode=json_mode, api_url=api_url, api_key=api_key) as session:
                await body(session, **given)

        asyncio.run(run())

    # Typer reads the signature: the body's parameters, then the common ones.
    keyword = inspect.Parameter.KEYWORD_ONLY
    common = [
        inspect.Parameter("json_mode", keyword, default=False, annotation=JsonOption),
        inspect.Parameter("api_url", keyword, default=None, annotation=ApiUrlOption),
        inspect.Parameter("api_key", keyword, default=None, annotation=ApiKeyOption),
    ]
    parameters = [option.replace(kind=keyword) for parameter in own for option in _options(parameter)] + common
    entry.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess] - Typer reads it
    entry.__wrapped__ = body  # pyright: ignore[reportFunctionMemberAccess] - as functools.wraps does
    entry.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    entry.__doc__ = body.__doc__
    entry.__name__ = getattr(body, "__name__", "command")
    return entry


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options that a parameter stands for: the fields of a dataclass, else itself."""
    annotation = parameter.annotation
    return [*inspect.signature(annotation, eval_str=True).parameters.values()] if _is_group(annotation) else [parameter]


def _is_group(annotation: object) -> TypeGuard[type[Any]]:
    return isinstance(annotation, type) and is_dataclass(annotation)
