import pytest

from nova_workers.sdk import ToolContext, ToolFailure
from tools.orders import look_up_order, refund


def test_it_looks_an_order_up_and_answers(model, run, transcript):
    model.calls("look_up_order", order="O-1").says("Your lamp was delivered.")
    ended = run("support", "Where is O-1?")
    assert ended.text == "Your lamp was delivered."
    (result,) = [entry for entry in transcript(ended) if entry.kind == "result"]
    assert '"status":"delivered"' in result.text


@pytest.mark.parametrize(("approve", "outcome"), [(True, "were paid back"), (False, "did not permit")])
def test_a_person_decides_on_a_refund(fleet, model, run, transcript, approve, outcome):
    model.calls("refund", order="O-1").says("That is settled.")
    waits = run("support", "The lamp is broken. I want my money.")
    assert waits.status == "waiting"
    ended = fleet.answer(waits, approve=approve)
    (result,) = [entry for entry in transcript(ended) if entry.kind == "result"]
    assert outcome in result.text


def test_the_tools_alone():
    assert refund("O-1", ToolContext(idempotency_key="k")) == "4900 cents of O-1 were paid back, as k."
    with pytest.raises(ToolFailure, match="There is no order 'O-2'"):
        look_up_order("O-2")
