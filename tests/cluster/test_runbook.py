"""What `docs/operations.md` tells operators to do, done: a backup, a migration, a deletion, each while workers work."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from gossamer.frontier.postgres_schema import upgrade
from gossamer.testing.postgres_server import programs
from gossamer.testing.synthetic_web import SyntheticWeb

from .rig import LONGEST_SECONDS, PATIENT, Crew, Servers, Worker, check_done, submit, wait_until
from .site import Site


def command(servers: Servers, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        env=servers.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )


def postgres_program(name: str, *arguments: str) -> None:
    folder = programs()
    assert folder is not None
    subprocess.run([folder / name, *arguments], check=True, timeout=LONGEST_SECONDS)


def restore(servers: Servers, dump: Path) -> None:
    """Replace the database by what a dump has."""
    servers.postgres.drop(servers.database)
    servers.database = servers.postgres.database()
    servers.dsn = servers.postgres.dsn(servers.database)
    postgres_program("pg_restore", "--no-owner", "--exit-on-error", "-d", servers.dsn, str(dump))


def job_rows(servers: Servers, number: int) -> dict[str, int]:
    """Return how many rows of a job each table has that knows of jobs."""
    tables = servers.ask(
        "SELECT table_name FROM information_schema.columns c JOIN pg_class t ON t.oid = ('gossamer.' || table_name)::regclass"
        " WHERE table_schema = 'gossamer' AND column_name = 'job' AND t.relkind IN ('r', 'p') AND NOT t.relispartition"
    )
    return {name: servers.number(f"SELECT count(*) FROM {name} WHERE job = %s", number) for (name,) in tables}


def redis_keys(servers: Servers, job: str) -> list[str]:
    """Return the keys that Redis has of a job."""
    answer = servers.redis.ask("KEYS", f"*:{job}*")
    return [line for line in answer.split("\r\n") if line.startswith("gossamer:")]


@pytest.mark.parametrize("flushed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_half_done_job_is_restored_from_a_backup_and_finished(
    web: SyntheticWeb, servers: Servers, crew: Crew, tmp_path: Path, flushed: bool
) -> None:
    site = Site(web, 120, 20)
    pages = "SELECT count(*) FROM pages"
    submit(servers, site, *PATIENT)
    release = site.hold(after=40)
    worker = crew.hire()
    wait_until(lambda: servers.number(pages) == 40, "as many are done as are answered")
    dump = tmp_path / "dump"
    postgres_program("pg_dump", "-Fc", "-f", str(dump), servers.dsn)
    # What comes now is not in the backup.
    release_all, enough = site.hold(after=30), site.after_hits(30)
    release.set()
    assert enough.wait(LONGEST_SECONDS)
    worker.send(signal.SIGTERM)
    release_all.set()
    assert worker.wait() == 143
    done = servers.number(pages)
    restore(servers, dump)
    assert 40 == servers.number(pages) < done < len(site.urls)
    if flushed:
        servers.redis.ask("FLUSHALL")
    crew.start()
    crew.finish()
    check_done(servers, site)


def test_workers_go_on_while_tables_are_changed_and_older_ones_do_not_start_afterwards(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 300, 10)
    submit(servers, site, *PATIENT)
    begun, release = site.after_hits(40), site.hold(after=200)
    workers = [crew.start(), crew.start()]
    for worker in workers:
        wait_until(lambda: worker.events("job_started"), "it has a part in the job")  # noqa: B023 - asked now
    assert begun.wait(LONGEST_SECONDS)
    assert not upgrade(servers.dsn)
    with psycopg.connect(servers.dsn) as connection:
        # As a migration does: all in one transaction, with locks that every commit waits for.
        connection.execute("ALTER TABLE gossamer.urls ADD COLUMN something integer")
        connection.execute("ALTER TABLE gossamer.jobs ADD COLUMN something integer")
        connection.execute("UPDATE gossamer.alembic_version SET version_num = '9999'")
        time.sleep(1.5)
    assert servers.number("SELECT count(*) FROM pages") < len(site.urls)
    release.set()
    late = crew.hire()
    assert (late.wait(), "newer Gossamer" in late.said()) == (2, True)
    assert [worker.wait() for worker in workers] == [0, 0]
    check_done(servers, site)


def test_a_job_is_deleted_under_its_worker_which_goes_on_with_the_other_one(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site, other = Site(web, 400, 10), Site(web, 150, 20)
    submit(servers, site)
    submit(servers, other, job="other")
    number = servers.number("SELECT id FROM jobs WHERE name = 'job'")
    crew.start()
    assert site.after_hits(40).wait(LONGEST_SECONDS)
    # It must not be done before it is deleted.
    site.answer_seconds = 1.0
    assert command(servers, "db", "delete", "job").returncode == 2
    assert all(job_rows(servers, number)[table] for table in ("urls", "pages", "fetches", "sources", "roots"))
    assert redis_keys(servers, "job")
    said = command(servers, "db", "delete", "job", "--yes")
    assert (said.returncode, said.stdout) == (0, "Job job is deleted.\n"), said.stderr
    crew.finish()
    assert set(job_rows(servers, number).values()) == {0}
    assert redis_keys(servers, "job") == []
    check_done(servers, other, job="other")


def test_what_a_killed_worker_had_leased_holds_up_a_deletion_until_the_leases_run_out(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site = Site(web, 400, 10)
    submit(servers, site)
    begun, release = site.after_hits(31), site.hold(after=30)
    worker = crew.hire()
    # Nobody can be done with the last one.
    assert begun.wait(LONGEST_SECONDS)
    worker.kill()
    release.set()
    assert servers.leases()
    said = command(servers, "db", "delete", "job", "--yes")
    assert said.returncode == 0, said.stderr
    assert (servers.leases(), redis_keys(servers, "job")) == (0, [])
    assert servers.number("SELECT count(*) FROM jobs") == 0
    assert submit(servers, site).returncode == 0


def freeze_between_transactions(servers: Servers, worker: Worker) -> None:
    """Stop a worker while it holds no lock in PostgreSQL: nobody would get by."""
    held = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gossamer' AND state LIKE '%%transaction%%'"
    busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gossamer' AND state = 'active'"

    def is_clear() -> bool:
        worker.send(signal.SIGSTOP)
        wait_until(lambda: not servers.number(busy), "the server has done what it was asked for")
        if not servers.number(held):
            return True
        worker.send(signal.SIGCONT)
        return False

    wait_until(is_clear, "it is in no transaction")


def test_a_worker_that_hung_while_its_job_was_deleted_leaves_it_and_goes_on_with_others(
    web: SyntheticWeb, servers: Servers, crew: Crew
) -> None:
    site, other = Site(web, 400, 10), Site(web, 60, 10)
    submit(servers, site)
    number = servers.number("SELECT id FROM jobs")
    worker = crew.start()
    assert site.after_hits(30).wait(LONGEST_SECONDS)
    freeze_between_transactions(servers, worker)
    with psycopg.connect(servers.dsn, options="-c search_path=gossamer") as connection:
        for table in job_rows(servers, number):
            connection.execute(f"DELETE FROM {table} WHERE job = %s", (number,))
        connection.execute("DELETE FROM jobs")
    submit(servers, other, job="other")
    worker.send(signal.SIGCONT)
    assert worker.wait() == 0, worker.said()
    assert [event["job"] for event in worker.events("job_failed")] == ["job"]
    assert not {name: n for name, n in job_rows(servers, number).items() if n}
    assert servers.number("SELECT count(*) FROM pages") == len(other.urls)
