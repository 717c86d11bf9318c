"""Makes tools of functions: the schema of the input, and the arguments of a call."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from nova_workers.base.errors import ConfigurationError, ToolFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions, misdeclared, place_of
from nova_workers.sdk.docstrings import read_docstring

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Names that every provider takes."""
_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class _Input(BaseModel):
    # Not frozen: the function may do with its arguments what it wants.
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function as a tool.

    Attributes:
        name: As models call it.
        description: For models.
        input_schema: The JSON schema of its input, an object.
        options: What it declares.
        place: Where it is written, as ``file:line``.
        function: Makes a call, with the arguments by name.
        is_async: Whether calling it returns what must be awaited.
    """

    name: str
    description: str
    input_schema: JsonObject
    options: ToolOptions
    place: str
    function: Callable[..., Any]
    is_async: bool
    _input: type[BaseModel]
    _fields: Mapping[str, str]
    """Names of parameters by names of fields."""
    _context: str | None

    @classmethod
    def of(cls, function: Callable[..., Any], options: ToolOptions) -> FunctionTool:
        """Return the tool that a function is.

        Raises:
            ConfigurationError: It cannot be one. The message has file and line, and what was expected.
        """
        name = options.name or function.__name__
        if not _NAME.fullmatch(name):
            raise misdeclared(function, f"{name!r} is no name of a tool; expected letters, digits and _, at most 64")
        words = read_docstring(function.__doc__)
        if not words.description:
            raise misdeclared(function, "it has no docstring; expected one that tells the model what the tool does")
        parameters = _parameters(function)
        contexts = [each for each, (annotation, _) in parameters.items() if _is_context(annotation)]
        if len(contexts) > 1:
            raise misdeclared(function, f"{' and '.join(contexts)} are contexts; expected at most one ToolContext")
        given = {each: parameter for each, parameter in parameters.items() if each not in contexts}
        unknown = sorted(words.parameters.keys() - parameters.keys())
        if unknown:
            raise misdeclared(function, f"its docstring describes {', '.join(unknown)}, which it does not take")
        # Pydantic keeps some names for itself: a field has a name of its own, and its parameter's as an alias.
        fields = {f"field_{index}": each for index, each in enumerate(given)}
        model = _model(function, given, fields, words.parameters)
        return cls(
            name=name,
            description=words.description,
            input_schema=_schema(function, model),
            options=options,
            place=place_of(function),
            function=function,
            is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
            _input=model,
            _fields=fields,
            _context=contexts[0] if contexts else None,
        )

    def arguments(self, given: JsonObject, context: ToolContext) -> dict[str, Any]:
        """Return the arguments of a call.

        Raises:
            ToolFailure: The input does not match the schema; the message names each part that does not.
        """
        try:
            values = self._input.model_validate(given)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in each['loc']) or 'input'}: {each['msg']}"
                for each in error.errors(include_url=False, include_context=False, include_input=False)
            )
            raise ToolFailure(f"{self.name} was called with arguments that it cannot use: {problems}") from error
        found = {
            parameter: getattr(values, field)
            for field, parameter in self._fields.items()
            # The function has its own default, of any type.
            if field in values.model_fields_set
        }
        return found if self._context is None else {**found, self._context: context}


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the annotation and the default of each parameter."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise misdeclared(
            function, f"its annotations cannot be read ({error}); expected types of its module's names"
        ) from error
    found: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in _UNNAMED:
            raise misdeclared(function, f"the parameter {name!r} is not passed by name; expected parameters that are")
        if name not in hints:
            raise misdeclared(function, f"the parameter {name!r} has no type; expected one such as '{name}: str'")
        found[name] = (hints[name], parameter.default)
    return found


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(part) for part in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _model(
    function: Callable[..., Any],
    given: Mapping[str, tuple[Any, Any]],
    fields: Mapping[str, str],
    descriptions: Mapping[str, str],
) -> type[BaseModel]:
    definitions: dict[str, Any] = {}
    for field, name in fields.items():
        annotation, default = given[name]
        about = Field(
            default=... if default is inspect.Parameter.empty else default,
            alias=name,
            description=descriptions.get(name),
        )
        definitions[field] = (annotation, about)
        try:
            # Each alone first: the error of all of them does not name the parameter.
            alone: dict[str, Any] = {field: (annotation, about)}
            create_model("Input", __base__=_Input, **alone)
        except (PydanticUserError, TypeError) as error:
            raise _unsupported(function, name, annotation) from error
    return create_model("Input", __base__=_Input, **definitions)


def _unsupported(function: Callable[..., Any], name: str, annotation: Any) -> ConfigurationError:
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return misdeclared(
        function,
        f"the parameter {name!r} has the type {shown}, which JSON cannot express; expected str, int, float, bool, "
        "list, dict, Literal, an Enum, a date, a dataclass, a TypedDict, a pydantic model, or a union of these",
    )


def _schema(function: Callable[..., Any], model: type[BaseModel]) -> JsonObject:
    try:
        schema: JsonObject = model.model_json_schema(by_alias=True)
    except (PydanticUserError, ValueError, TypeError, RecursionError) as error:
        problem = str(error).partition("\n")[0]
        raise misdeclared(function, f"its input has no JSON schema ({problem}); expected types of JSON") from error
    # Titles repeat the names, and would waste tokens.
    for part in (schema, *schema.get("properties", {}).values()):
        part.pop("title", None)
    return schema
