"""The versions of the PostgreSQL ledger, for Alembic. Shipped with the package; `postgres_schema.py` runs them."""
