"""The contract of effects, as tests that an author's class inherits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, Protocol

import pytest

from nova_workers.contracts.ended_runs import EndedRun, RunError
from nova_workers.sdk.effects import as_effect
from nova_workers.sdk.testing.effect_process import Call, EffectProcess

_MOST_POINTS: Final = 40
"""Points of a call at which it is killed or stopped; of more, so many are taken evenly."""
_MAX_TEXT_CHARS: Final = 16_000
_LEAST_SECRET_CHARS: Final = 6
"""Shorter values are in ordinary words."""
_BEGAN: Final = datetime(2030, 5, 1, 9, tzinfo=UTC)
_numbers = count(1)


class Place(Protocol):
    """Where an effect has its effect, as its tests have it: a server of theirs, a file, a mailbox.

    Attributes:
        secrets: What the effect is given of a tenant's secrets, such as the address of the test's server.
    """

    @property
    def secrets(self) -> Mapping[str, str]:
        """What the effect is given of a tenant's secrets."""
        ...

    def outcome(self, run: EndedRun) -> Any:
        """Return all that calls for a run have done, as a value to compare; None for nothing.

        It is equal for two runs that differ in nothing but their ids: without ids, keys and times.
        """
        ...

    def broken(self) -> AbstractContextManager[None]:
        """Let the effect fail within the block, such as by answers of 503."""
        ...


class EffectContract:
    """Holds an effect to its contract. A subclass names the effect, and has a fixture ``place``.

    Such as::

        class TestLogRun(EffectContract):
            effect = staticmethod(log_run)

            @pytest.fixture
            def place(self, desk):
                return DeskPlace(desk)

    Each call is made in a process of its own, without the environment of the test: what the effect knows of the test
    are its secrets.
    """

    effect: Callable[..., Any]

    @pytest.fixture
    def place(self) -> Place:
        """Return where the effect has its effect. For the subclass."""
        raise NotImplementedError("The contract of an effect needs a fixture 'place'; see its docstring.")

    @pytest.fixture(scope="class")
    @classmethod
    def effect_process(cls) -> Iterator[EffectProcess]:
        """Start the process of the effect's module."""
        with EffectProcess(cls.effect.__module__) as process:
            yield process

    @pytest.fixture
    def make_run(self) -> Callable[..., EndedRun]:
        """Return a function that makes an ended run on which the effect acts. For subclasses that need another."""
        return ended_run

    @pytest.fixture
    def call(self, effect_process: EffectProcess, place: Place) -> Callable[..., Call]:
        """Return a function that calls the effect for a run."""
        name = self._name()

        def call(run: EndedRun, **at: int) -> Call:
            return effect_process.call(name, run, f"eff_{run.run_id}", place.secrets, **at)

        return call

    def test_it_is_declared(self, effect_process: EffectProcess) -> None:
        """Look for it in its module, as a worker does."""
        assert self._name() in effect_process.names

    def test_a_repeated_call_changes_nothing(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
    ) -> None:
        """Call it again with the same key, as after a worker that died between the call and its record."""
        run = make_run()
        _succeeds(call(run))
        outcome = place.outcome(run)
        assert outcome is not None, "Nothing was done. Should the effect do nothing here, override 'make_run'."
        _succeeds(call(run))
        assert place.outcome(run) == outcome, "The second call with the same key changed the outcome of the first."

    def test_each_run_has_an_outcome_of_its_own(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
    ) -> None:
        """Call it for two runs."""
        one, other = make_run(), make_run()
        _succeeds(call(one))
        assert place.outcome(other) is None, "The outcome of one run is that of another too."
        _succeeds(call(other))
        assert place.outcome(one) == place.outcome(other) != None  # noqa: E711 - a value that compares as it likes

    def test_a_killed_call_is_completed_by_the_next(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
    ) -> None:
        """Kill it at each of its points in turn, and call it again."""
        outcome, points = _reference(call, place, make_run)
        for point in points:
            run = make_run()
            assert call(run, kill_at=point).killed
            _succeeds(call(run))
            assert place.outcome(run) == outcome, f"It was killed at point {point} of {points[-1]}, and called again."

    def test_a_call_that_was_given_up_may_go_on_after_the_next(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun], effect_process: EffectProcess
    ) -> None:
        """Let a call go on after another one: one that exceeded its time limit is not known to have ended."""
        outcome, points = _reference(call, place, make_run)
        for point in points:
            run = make_run()
            stopped = call(run, stop_at=point)
            # It may fail, such as where the first one has a lock; then a later one succeeds.
            call(run)
            effect_process.resume(stopped)
            _succeeds(call(run))
            assert place.outcome(run) == outcome, (
                f"A call was stopped at point {point} of {points[-1]}, another one was made, and the first went on."
            )

    def test_a_failure_is_raised_and_a_later_call_succeeds(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
    ) -> None:
        """Let it fail, which it must raise: a worker calls again only after an error."""
        expected = make_run()
        _succeeds(call(expected))
        run = make_run()
        with place.broken():
            assert call(run).error is not None, "The effect failed, and its call looks like one that succeeded."
        _succeeds(call(run))
        assert place.outcome(run) == place.outcome(expected)

    @pytest.mark.parametrize("changed", ["failed", "canceled", "empty", "long", "strange"])
    def test_every_ended_run_is_taken(
        self, changed: str, call: Callable[..., Call], make_run: Callable[..., EndedRun]
    ) -> None:
        """Call it for a run of another kind."""
        _succeeds(call(make_run().model_copy(update=_CHANGES[changed])))

    def test_no_secret_is_written_out(
        self, call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
    ) -> None:
        """Look for secrets in logs and errors, which operators and their tools read."""
        done = call(make_run())
        with place.broken():
            failed = call(make_run())
        words = f"{done.output}{done.error}{failed.output}{failed.error}"
        shown = [name for name, value in place.secrets.items() if len(value) >= _LEAST_SECRET_CHARS and value in words]
        assert not shown, f"The values of {', '.join(shown)} are in what the effect prints, logs or raises."

    def _name(self) -> str:
        effect = as_effect(type(self).effect)
        assert effect is not None, f"{type(self).effect!r} is not declared with @effect."
        return effect.name


def ended_run(**fields: Any) -> EndedRun:
    """Return a run that ended with an answer, as no other has it; fields are those of `EndedRun`."""
    number = next(_numbers)
    made: dict[str, Any] = {
        "run_id": f"run_{number:026}",
        "tenant_id": "ten_test",
        "agent_id": "support",
        "thread_id": f"thr_{number:026}",
        "status": "succeeded",
        "stop_reason": "end_turn",
        "source": "api",
        "text": "The lamp was delivered.",
        "created_at": _BEGAN,
        "finished_at": _BEGAN + timedelta(seconds=8),
    }
    return EndedRun.model_validate(made | fields)


_CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "failed": {
        "status": "failed",
        "stop_reason": "error",
        "text": "",
        "error": RunError(kind="provider_overloaded", message="The provider is overloaded."),
    },
    "canceled": {"status": "canceled", "stop_reason": "aborted", "text": "The lamp"},
    "empty": {"text": ""},
    "long": {"text": "ö" * _MAX_TEXT_CHARS, "text_truncated": True},
    "strange": {"text": "'; DROP TABLE runs;-- \u202e\U0001f9d1\u200d\U0001f680 \x07\r\n<script>{{7*7}}%s${HOME}"},
}


def _succeeds(call: Call) -> None:
    assert call.error is None, f"The call failed: {call.error}\n{call.output}"


def _reference(
    call: Callable[..., Call], place: Place, make_run: Callable[..., EndedRun]
) -> tuple[Any, tuple[int, ...]]:
    """Return the outcome of an undisturbed call, and the points at which others are disturbed."""
    run = make_run()
    done = call(run)
    _succeeds(done)
    every = max(1, -(-done.points // _MOST_POINTS))
    return place.outcome(run), tuple(range(1, done.points + 1, every))
