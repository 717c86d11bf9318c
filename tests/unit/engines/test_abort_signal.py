from nova_workers.contracts.abort import AbortSignal


async def test_listeners_hear_the_first_reason_once() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    abort.subscribe(heard.append)
    abort.abort("drain")
    abort.abort("cancel")
    assert heard == ["drain"]
    assert await abort.wait() == "drain"


async def test_who_comes_late_hears_at_once() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    abort.abort("lost")
    abort.subscribe(heard.append)
    assert heard == ["lost"]


async def test_who_left_hears_nothing() -> None:
    heard: list[str] = []
    abort = AbortSignal()
    unsubscribe = abort.subscribe(heard.append)
    unsubscribe()
    unsubscribe()
    abort.abort("cancel")
    assert heard == []
