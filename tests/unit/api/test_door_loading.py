"""Doors: loaded by name (see `tests/unit/test_imports.py`), and closed with a reason where their SDK is missing."""

import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.testclient import TestClient

from api.doors import loading
from api.errors import DoorNotInstalled
from nova_workers.base.config import Settings


def test_the_settings_take_doors_that_exist() -> None:
    assert Settings(doors=("openai",)).doors == ("openai",)
    with pytest.raises(ValidationError):
        Settings.model_validate({"doors": ["opened"]})


def test_a_door_whose_sdk_is_missing_refuses_every_request_and_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str, package: str | None = None) -> None:
        raise ModuleNotFoundError("No module named 'sdk'", name="sdk")

    monkeypatch.setattr(loading, "import_module", fail)
    (door,) = loading.load_doors(["openai"], {"openai": loading.Place("/openai/v1/", "sdk-extra")})
    with TestClient(Starlette(routes=list(door.routes))) as client, pytest.raises(DoorNotInstalled) as refused:
        client.post("/openai/v1/responses")
    assert refused.value.fields == {"door": "openai", "extra": "sdk-extra"}
    states = {view.name: view.state for view in loading.describe_doors([door])}
    assert states == dict.fromkeys(loading.DOORS, "closed") | {"openai": "not_installed"}
