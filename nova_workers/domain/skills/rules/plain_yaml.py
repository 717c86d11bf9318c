"""Reads YAML of plain values, in which every scalar is a string: a version 1.10 or a name `on` is unchanged."""

import yaml

_MAX_DEPTH = 4


def load_plain(text: str) -> object:
    """Return the strings, lists and mappings of a text.

    Raises:
        ValueError: It is not YAML, has aliases, nests too deep, or a name stands twice in its mapping; says which.
    """
    try:
        _check(text)
        return yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 - it constructs strings, lists and mappings only
    except yaml.MarkedYAMLError as error:
        raise ValueError(error.problem or error.context) from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CBaseLoader):
        if isinstance(event, yaml.AliasEvent):
            # A few lines of nested aliases can expand to gigabytes.
            raise ValueError("aliases (*name) are not taken")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels")
    root = yaml.compose(text, Loader=yaml.CBaseLoader)
    if isinstance(root, yaml.MappingNode):
        names = [str(key.value) for key, _ in root.value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} stands in it twice")
