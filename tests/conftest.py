"""What holds for all tests."""

import pytest
from hypothesis import HealthCheck, settings

# Before any test module imports them, be it only for a helper: a failed assertion then says what was compared.
pytest.register_assert_rewrite(
    "gossamer.testing.books_contract",
    "gossamer.testing.ledger_contract",
    "gossamer.testing.scheduler_contract",
)

# The same examples each time, however slow the machine is; `--hypothesis-profile=default` looks for others.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
