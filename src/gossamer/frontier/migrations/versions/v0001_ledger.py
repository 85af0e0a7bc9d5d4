"""The first version of the PostgreSQL ledger. Names are found by the search path that `upgrade` has set."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

#: Fixed for good: another number would move every row.
PARTITIONS = 16

_JOBS = """
CREATE TABLE jobs(
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    spec text NOT NULL,
    settings text NOT NULL,
    created_at double precision NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    stopped boolean NOT NULL DEFAULT false
);
CREATE TABLE meta(
    job integer NOT NULL, key text NOT NULL, value text NOT NULL, PRIMARY KEY(job, key)
);
CREATE TABLE roots(job integer NOT NULL, root text NOT NULL, PRIMARY KEY(job, root));
CREATE TABLE sources(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job integer NOT NULL,
    host text NOT NULL,
    grp text NOT NULL,
    pages bigint NOT NULL DEFAULT 0,
    last_crawl double precision NOT NULL DEFAULT 0,
    active boolean NOT NULL DEFAULT true,
    min_delay double precision NOT NULL DEFAULT 0,
    UNIQUE(host, job)
) WITH (fillfactor = 70);
CREATE INDEX sources_job ON sources(job);
-- What operators have decided about hosts.
CREATE INDEX sources_steered ON sources(host) WHERE NOT active OR min_delay > 0;
-- By politeness group, whatever the job: a site owner does not care which of them asks.
CREATE TABLE groups(
    grp text PRIMARY KEY,
    last_start double precision NOT NULL,
    delay double precision NOT NULL,
    until double precision NOT NULL,
    failures integer NOT NULL,
    slowness double precision NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE cursors(
    job integer NOT NULL,
    output text NOT NULL,
    position bigint NOT NULL,
    "offset" bigint NOT NULL,
    records bigint NOT NULL,
    PRIMARY KEY(job, output)
) WITH (fillfactor = 50);
"""

_URLS = """
-- The fingerprint comes first in the key, so that no plan can mistake the key for a list of a job's URLs; the other two
-- indexes together are one. `host` is the id of a source, `parent` the fingerprint of the page it was found on. A commit takes a block of
-- numbers at a time and gives them out in the order of discovery.
CREATE SEQUENCE url_seq INCREMENT BY 1024;
CREATE TABLE urls(
    fp bigint NOT NULL,
    seq bigint NOT NULL,
    host bigint NOT NULL,
    parent bigint,
    not_before double precision NOT NULL DEFAULT 0,
    settled_at double precision,
    next_visit double precision,
    job integer NOT NULL,
    priority integer NOT NULL,
    depth integer NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    visit integer NOT NULL DEFAULT 1,
    status integer,
    state smallint NOT NULL,
    reason text NOT NULL DEFAULT '',
    source text NOT NULL,
    url text NOT NULL,
    detail text,
    request bytea,
    etag text,
    last_modified text,
    PRIMARY KEY(fp, job)
) PARTITION BY HASH (fp);
CREATE INDEX urls_live ON urls(job, host, priority, seq) WHERE state = 0;
-- A URL that waits is not in it: most never leave the queue more than once, and adding must stay cheap.
CREATE INDEX urls_settled ON urls(job, state, reason, seq) WHERE state <> 0;
"""

_RECORDS = """
-- The record log: one row a commit, numbered without gaps in the order of the commits. `number` is what its pages
-- go by; `lost` and `duplicates` are what it answered, for the same batch sent again.
CREATE SEQUENCE commit_seq;
CREATE TABLE log(
    job integer NOT NULL,
    position bigint NOT NULL,
    number bigint NOT NULL,
    batch text NOT NULL,
    worker text NOT NULL,
    committed_at double precision NOT NULL,
    records integer NOT NULL,
    lost bytea NOT NULL,
    duplicates bytea NOT NULL,
    PRIMARY KEY(job, position),
    UNIQUE(job, batch)
);
CREATE TABLE log_heads(job integer PRIMARY KEY, position bigint NOT NULL) WITH (fillfactor = 10);
CREATE TABLE pages(
    number bigint NOT NULL,
    fp bigint NOT NULL,
    job integer NOT NULL,
    n integer NOT NULL,
    attempt integer NOT NULL,
    status integer NOT NULL,
    record jsonb NOT NULL,
    PRIMARY KEY(number, n)
) PARTITION BY HASH (number);
CREATE INDEX pages_url ON pages(job, fp);
CREATE TABLE fetches(
    id bigint GENERATED ALWAYS AS IDENTITY,
    started_at double precision NOT NULL,
    delay double precision NOT NULL,
    elapsed double precision NOT NULL,
    fp bigint,
    wire_bytes bigint NOT NULL,
    robots bigint NOT NULL,
    job integer NOT NULL,
    attempt integer NOT NULL,
    status integer NOT NULL,
    grp text NOT NULL,
    kind text NOT NULL,
    problem text NOT NULL,
    worker text NOT NULL,
    url text
) PARTITION BY HASH (grp);
CREATE INDEX fetches_group ON fetches(grp, started_at);
CREATE INDEX fetches_url ON fetches(job, fp);
CREATE TABLE notes(
    id bigint GENERATED ALWAYS AS IDENTITY,
    job integer NOT NULL,
    at double precision NOT NULL,
    worker text NOT NULL,
    level text NOT NULL,
    url text NOT NULL,
    note text NOT NULL,
    PRIMARY KEY(job, id)
);
-- Only ever added to, so that no commit waits for another's numbers; folded now and then.
CREATE TABLE counts(job integer NOT NULL, state smallint NOT NULL, reason text NOT NULL, n bigint NOT NULL);
CREATE INDEX counts_job ON counts(job);
CREATE TABLE totals(job integer NOT NULL, name text NOT NULL, n bigint NOT NULL);
CREATE INDEX totals_job ON totals(job);
"""

_KNOWLEDGE = """
CREATE TABLE robots(
    job integer NOT NULL, origin text NOT NULL, fetched_at double precision NOT NULL, status integer NOT NULL,
    version bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY(job, origin, fetched_at)
);
CREATE TABLE robots_failures(
    job integer NOT NULL, origin text NOT NULL, since double precision NOT NULL, PRIMARY KEY(job, origin)
);
CREATE TABLE cookies(
    id bigint GENERATED ALWAYS AS IDENTITY, job integer NOT NULL, key text NOT NULL, data bytea NOT NULL,
    PRIMARY KEY(job, key)
);
CREATE INDEX cookies_age ON cookies(job, id);
CREATE TABLE contents(job integer NOT NULL, hash bigint NOT NULL, url text NOT NULL, PRIMARY KEY(job, hash));
CREATE TABLE near_contents(
    job integer NOT NULL, block integer NOT NULL, simhash bigint NOT NULL, hash bigint NOT NULL,
    PRIMARY KEY(job, block, simhash)
);
"""

# A tenth less work for the server than its own compression; not every server is built with it. Partitions inherit it.
_COMPRESSION = """
DO $$ BEGIN
    IF (SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE pages ALTER COLUMN record SET COMPRESSION lz4;
    END IF;
END $$;
"""
# For people: a record with the name of its job, and when it came in.
_VIEW = """
CREATE VIEW records AS
    SELECT jobs.name AS job, pages.record->>'url' AS url, pages.status, pages.record, log.position, pages.n,
           to_timestamp(log.committed_at) AS committed_at, log.worker, pages.attempt
    FROM jobs JOIN log ON log.job = jobs.id JOIN pages ON pages.number = log.number;
"""


def upgrade() -> None:
    """Make the tables, indexes and partitions."""
    for script in (_JOBS, _URLS, _RECORDS, _KNOWLEDGE, _COMPRESSION, _VIEW):
        op.get_bind().exec_driver_sql(script)
    for table in ("urls", "pages", "fetches"):
        for number in range(PARTITIONS):
            op.get_bind().exec_driver_sql(
                f"CREATE TABLE {table}_{number:02} PARTITION OF {table}"
                f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
                # Settled rows leave dead entries in the index of the live: clear them away early.
                " WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)"
            )
