"""What holds for all tests."""

import pytest

# Before any test module imports them, be it only for a helper: a failed assertion then says what was compared.
pytest.register_assert_rewrite(
    "gossamer.testing.books_contract",
    "gossamer.testing.ledger_contract",
    "gossamer.testing.scheduler_contract",
)
