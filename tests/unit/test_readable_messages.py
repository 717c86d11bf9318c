"""What passes as readable, kombu's own parser reads."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st
from kombu.utils.json import loads

from nova_workers.broker.messages import unreadable

_ENVELOPE = (
    '{"body": "W10=", "content-type": "application/json", "content-encoding": "utf-8", "headers": {}, "properties":'
    ' {"delivery_tag": "x", "body_encoding": "base64", "delivery_info": {"exchange": "", "routing_key": "q"}},'
    ' "extra": %s}'
)
_TEXT = st.text() | st.sampled_from(["__type__", "__value__", '\\"', "\ud800"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**40), 10**40) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


def test_a_message_of_the_usual_form_is_readable() -> None:
    assert unreadable((_ENVELOPE % "null").encode()) is None


@given(_VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)) | st.text())
@example("1" * 5_000)
@example("[" * 2_000 + "]" * 2_000)
@example("[" * 60 + "]" * 60)
@example("1e999")
@example('{"__type__": "datetime", "__value__": "no time"}')
@example('{"\\u005f_type__": "datetime", "__value__": "no time"}')
@example('"\\ud800"')
def test_what_is_readable_is_read_by_kombu(extra: str) -> None:
    raw = (_ENVELOPE % extra).encode("utf-8", "surrogatepass")
    if unreadable(raw) is None:
        loads(raw)
