"""What the channel imports of aiogram is built when it is first used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_BUILT = """
import json, sys
import nova_workers.channels.telegram.serve
from aiogram import methods, types
from pydantic import BaseModel

def models(module):
    found = (getattr(module, name) for name in module.__all__)
    return [each for each in found if isinstance(each, type) and issubclass(each, BaseModel)]

of_types = models(types)
before = sum(each.__pydantic_complete__ for each in of_types)
types.Update.model_validate({"update_id": 1, "message": {
    "message_id": 2, "date": 3, "chat": {"id": 4, "type": "private"}, "text": "hello",
    "reply_markup": {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]},
}})
used = sum(each.__pydantic_complete__ for each in of_types)
unusable = []
if "all" in sys.argv:
    calls = [each for each in models(methods) if "__returning__" in vars(each) and each is not methods.TelegramMethod]
    answers = [methods.Response[each.__returning__] for each in calls]
    for each in [*of_types, *calls, *answers]:
        each.model_rebuild()
        if not each.__pydantic_complete__:
            unusable.append(each.__name__)
print(json.dumps([len(of_types), before, used, unusable]))
"""


def _built(*arguments: str) -> tuple[int, int, int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _BUILT, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    types, before, used, unusable = json.loads(done.stdout)
    return types, before, used, unusable


def test_no_type_is_built_by_the_import_and_few_by_a_message() -> None:
    types, before, used, _ = _built()
    assert types > 300
    assert before < types / 10
    assert used < types / 2


@pytest.mark.long
def test_each_type_and_method_can_be_built_when_it_is_used() -> None:
    *_, unusable = _built("all")
    assert unusable == []
