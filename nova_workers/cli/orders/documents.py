"""Reads an order, a policy or a payload from a file of JSON or YAML."""

from typing import Any

import yaml

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.terminal.text_input import read_file


def read_document(file: str) -> dict[str, Any]:
    """Return the mapping that a file contains; ``-`` reads stdin.

    Raises:
        InvalidInput: It cannot be read, or contains something else.
    """
    text = read_file(file)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file} is neither JSON nor YAML: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} has to contain a mapping of fields.")
    return {str(name): value for name, value in document.items()}
