from nova_workers.contracts.abort import AbortSignal


async def test_subscribers_get_the_first_reason_once() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    abort.subscribe(heard.append)
    abort.abort("drain")
    abort.abort("cancel")
    assert heard == ["drain"]
    assert await abort.wait() == "drain"


async def test_a_late_subscriber_is_called_at_once() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    abort.abort("lost")
    abort.subscribe(heard.append)
    assert heard == ["lost"]


async def test_an_unsubscribed_callback_is_not_called() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    unsubscribe = abort.subscribe(heard.append)
    unsubscribe()
    unsubscribe()
    abort.abort("cancel")
    assert heard == []
