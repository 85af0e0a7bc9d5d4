"""What the robots.txt of a host last said, next to the host: for `gossamer sources`, and for people who ask in SQL.

Columns without a value for the rows there are, or with the same one for all: no row is written. Workers of version 0001
name the columns they write, and go on.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

_SOURCES = """
ALTER TABLE sources
    -- As in `robots`; 0 where it could not be had. NULL before it was first asked for.
    ADD COLUMN robots_status integer,
    ADD COLUMN robots_fetched_at double precision NOT NULL DEFAULT 0,
    -- What it asks our user agent for, in seconds; 0 for nothing.
    ADD COLUMN crawl_delay double precision NOT NULL DEFAULT 0
"""


def upgrade() -> None:
    """Add the columns."""
    op.get_bind().exec_driver_sql(_SOURCES)
