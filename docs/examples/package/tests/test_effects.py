import pytest

from acme_desk.effects import log_run
from desk import Desk
from nova_workers.sdk.testing.effects import EffectContract


class TestLogRun(EffectContract):
    effect = staticmethod(log_run)

    @pytest.fixture
    def place(self):
        with Desk() as desk:
            yield desk
