import pytest

pytest.register_assert_rewrite(
    "gossamer.testing.books_contract",
    "gossamer.testing.ledger_contract",
    "gossamer.testing.scheduler_contract",
)
