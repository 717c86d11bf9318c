"""A process raises its limit on open files as far as it needs and may."""

import resource
from collections.abc import Generator

import pytest

from nova_workers.base.open_files import allow_files


@pytest.fixture(autouse=True)
def limit() -> Generator[int]:
    """Lower the soft limit for a test, and give the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised_to_what_is_needed() -> None:
    assert allow_files(1_500) == 1_500
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1_500


def test_a_limit_that_is_high_enough_stays() -> None:
    assert allow_files(100) == 100
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1_000


def test_the_limit_is_not_raised_above_what_is_permitted(limit: int) -> None:
    assert allow_files(limit + 1) == limit
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
