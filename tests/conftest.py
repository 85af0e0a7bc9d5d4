"""What holds for all tests."""

import pytest
from hypothesis import HealthCheck, settings

# Before any test module imports them, be it only for a helper: a failed assertion then says what was compared.
pytest.register_assert_rewrite(
    "gossamer.testing.books_contract",
    "gossamer.testing.ledger_contract",
    "gossamer.testing.scheduler_contract",
)

# However slow the machine is. The same examples each time, but for `make soak`, which looks for others.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("searching"), derandomize=True)
settings.load_profile("steady")
