"""Who may write, and how often strangers get a refusal."""

from nova_workers.channels.allow_list import AllowList
from tests.requirements import proves


@proves("security.telegram")
def test_only_the_named_may_write_and_an_asterisk_names_everyone() -> None:
    assert [AllowList(["ann"]).permits(sender) for sender in ("ann", "ben", "*", "")] == [True, False, False, False]
    assert AllowList(["*"]).permits("ben")
    assert not AllowList([]).permits("ann")


@proves("security.telegram")
def test_a_stranger_gets_one_refusal_an_hour_and_strangers_are_bounded() -> None:
    now_s = 0.0
    allowed = AllowList(["ann"], clock_s=lambda: now_s)
    assert [allowed.should_refuse("ben") for _ in range(3)] == [True, False, False]
    assert sum(allowed.should_refuse(f"stranger {number}") for number in range(5_000)) == 999
    now_s = 3_601.0
    assert [allowed.should_refuse("ben"), allowed.should_refuse("ben")] == [True, False]
