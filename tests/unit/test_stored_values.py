"""Values that a later release stored, as this one reads them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.errors import NewerValue
from nova_workers.ledger.stored import read_stored, to_store
from tests.requirements import proves


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = 1
    name: str | None = None


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid")

    inner: _Inner
    limit: int | None = None
    free: dict[str, Any] = {}


class _Request(_Value):
    id: str


@proves("upgrade.newer")
@pytest.mark.parametrize("nothing", [None, False, 0, "", [], {}])
def test_a_field_of_a_later_release_that_holds_nothing_is_left_out(nothing: object) -> None:
    stored = {"inner": {"size": 2, "later": nothing}, "another": nothing}
    assert read_stored(_Value.model_validate, stored) == _Value(inner=_Inner(size=2))


@pytest.mark.parametrize("used", ["x", 1, True, ["a"], {"a": None}])
def test_a_field_of_a_later_release_that_holds_something_is_refused_by_its_name(used: object) -> None:
    with pytest.raises(NewerValue, match=r"'inner\.later'") as refused:
        read_stored(_Value.model_validate, {"inner": {"later": used}, "another": None})
    assert refused.value.fields["fields"] == ["inner.later"]


def test_a_value_is_stored_without_its_null_fields_and_with_the_nulls_of_free_json() -> None:
    given = _Request(id="one", inner=_Inner(), free={"a": None, "b": [None, {"c": None}]})
    stored = {"inner": {"size": 1}, "free": {"a": None, "b": [None, {"c": None}]}}
    assert to_store(_Value, given) == stored
    assert read_stored(_Value.model_validate, stored) == _Value(inner=given.inner, free=given.free)


def test_a_value_of_another_form_is_an_error_as_before() -> None:
    with pytest.raises(ValidationError):
        read_stored(_Value.model_validate, {"inner": {"size": "large", "later": None}})
