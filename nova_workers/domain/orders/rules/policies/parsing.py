"""Reads policies, and finds every error of one. Pure: the command line checks documents with it, without a server."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.json_schemas import schema_problem
from nova_workers.base.validation import place_of, problem_of
from nova_workers.contracts.orders import PolicyDocument


def parse_policy(document: object) -> PolicyDocument:
    """Return a document as a policy.

    Raises:
        InvalidInput: It has errors; ``fields['errors']`` names each with its path.
    """
    try:
        policy = PolicyDocument.from_wire(document)
    except ValidationError as error:
        items = error.errors(include_url=False, include_input=False)
        raise _refusal([(place_of(item), problem_of(item, PolicyDocument)) for item in items]) from None
    problems = [problem for place, schema in _schemas(policy) for problem in _schema_problems(place, schema)]
    problems += [
        (f"roles.{at}.models", f"none has all of requiredCapabilities ({', '.join(policy.required_capabilities)})")
        for at, role in enumerate(policy.roles)
        if not policy.eligible(role)
    ]
    if problems:
        raise _refusal(problems)
    return policy


def _schemas(policy: PolicyDocument) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if policy.inputs_schema is not None:
        yield "inputsSchema", policy.inputs_schema
    for kind, schema in policy.artifact_kinds.items():
        yield f"artifactKinds.{kind}", schema


def _schema_problems(place: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    problem = schema_problem(schema, place)
    if problem is not None:
        yield problem


def _refusal(problems: list[tuple[str, str]]) -> InvalidInput:
    lines = [f"{place or 'the document'}: {words}" for place, words in problems]
    return InvalidInput(
        "\n".join(["The policy has errors:", *lines]),
        errors=[{"field": f"document.{place}".removesuffix("."), "message": words} for place, words in problems],
    )
