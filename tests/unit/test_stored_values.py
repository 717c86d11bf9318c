"""Values that a later release stored, as this one reads them."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.errors import NewerValue
from nova_workers.ledger.stored import read_stored
from tests.requirements import proves


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = 1


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid")

    inner: _Inner


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


def test_a_value_of_another_form_is_an_error_as_before() -> None:
    with pytest.raises(ValidationError):
        read_stored(_Value.model_validate, {"inner": {"size": "large", "later": None}})
