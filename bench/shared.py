"""What does sharing a crawl cost? Two workers on Redis and PostgreSQL, beside scrapy-redis and our own crawl on one machine.

Exits with 1 where the contestants did not find the same pages and links, or where a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil
import psycopg

from bench import compare, corpus, measure, report
from bench.backends import ask, redis_seconds, server_seconds
from bench.report import Spread
from bench.scrapy_redis_spider.pipeline import BATCH_ITEMS, TABLE
from bench.server import serve
from gossamer.testing.postgres_server import PostgresServer, migrated_database
from gossamer.testing.redis_server import RedisServer, redis_server

#: The site that every host has: small, so that many hosts are not too many pages.
PACKAGE = "git-doc"
HOSTS = [f"127.0.1.{number}" for number in range(1, 41)]
WORKERS = 2
#: The same for everybody: requests at a time, of a process and of a host.
FLAGS = ["--delay", "0", "--per-host", "8", "-c", "64", "--allow-private", "-q"]
GOSSAMER = str(Path(sys.executable).with_name("gossamer"))

SHARED, PEER = "2 gossamer workers", "2 scrapy-redis spiders"
ALONE, TWO = "gossamer crawl", "gossamer crawl --workers 2"
#: One page of the site, of some two hundred, links to `http://<servername>/`, which is no URL for us.
PEER_TOLERANCE = 0.006
#: What the project promises: of the median of the rounds.
MIN_TIMES_PEER = 3.0
MAX_TIMES_ALONE = 1.3
MAX_SERVERS_MS = 0.3
MAX_ROUND_TRIPS = 2.0
MIN_PAGES_A_TRANSACTION = 50.0
#: Not promised, but else it is no crawl of two.
MIN_SHARE = 25.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One crawl: of its processes, and of the servers beside them."""

    pages: int
    wall: float
    cpu: float
    #: Of it, what the same command takes that finds nothing left to do.
    start_cpu: float
    peak_mb: float
    redis_cpu: float = 0.0
    postgres_cpu: float = 0.0
    round_trips: int = 0
    transactions: int = 0
    redis_mb: float = 0.0
    #: Of the pages, those that the process did that did fewest; with two, half is best.
    least_share: float = 0.0

    @property
    def ms(self) -> float:
        """CPU of the crawlers for a page."""
        return 1000 * self.cpu / self.pages

    @property
    def running_ms(self) -> float:
        """The same without the start, which a long crawl does not feel."""
        return 1000 * (self.cpu - self.start_cpu) / self.pages

    @property
    def servers_ms(self) -> float:
        return 1000 * (self.redis_cpu + self.postgres_cpu) / self.pages


class Backends:
    """Servers of a round's own, as a user would run them: PostgreSQL waits for its disk."""

    def __init__(self, postgres: PostgresServer, redis: RedisServer) -> None:
        self.postgres = postgres
        self.redis = redis
        self.dsn = postgres.dsn(migrated_database(postgres))

    def environment(self) -> dict[str, str]:
        return os.environ | {"GOSSAMER_REDIS": self.redis.url, "GOSSAMER_POSTGRES": self.dsn}

    def state(self) -> tuple[float, float, int, int, int]:
        """Return the CPU seconds of both, reads of Redis, commits, and bytes of Redis at its largest, so far.

        A call that comes in several packets is several reads: there were at most so many round trips.
        """
        return (
            redis_seconds(self.redis),
            server_seconds(self.postgres.pid),
            int(self.redis.info("stats", "total_reads_processed")),
            int(ask(self.dsn, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")),
            int(self.redis.info("memory", "used_memory_peak")),
        )


@contextmanager
def backends() -> Iterator[Backends]:
    server = PostgresServer(durable=True)
    try:
        server.start()
        with redis_server() as redis:
            yield Backends(server, redis)
    finally:
        server.remove()


Found = tuple[Figures, compare.Crawl]
#: One that did nothing is not in the table.
LEAST = "SELECT CASE count(*) WHEN 2 THEN min(n) ELSE 0 END FROM (SELECT {pages} AS n FROM {table} GROUP BY {who}) w"


def work_together(argv: list[str], environment: dict[str, str], name: str) -> tuple[float, float]:
    """Run a command twice at the same time, to the end of both; returns CPU seconds and the largest resident MB."""
    log = corpus.OUT / f"shared-{name}.log"
    with log.open("wb") as file:
        processes = [
            subprocess.Popen(argv, env=environment, stdout=file, stderr=file) for _ in range(WORKERS)
        ]
    cpu, peak = 0.0, largest([psutil.Process(process.pid) for process in processes])
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu += usage.ru_utime + usage.ru_stime
    if any(process.returncode for process in processes):
        raise SystemExit(f"{' '.join(argv)} failed:\n{log.read_text(errors='replace')[-2000:]}")
    return cpu, peak


def largest(processes: list[psutil.Process]) -> float:
    """Watch processes until all have ended; returns the most MB they had at one moment."""
    peak = 0.0
    while alive := [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]:
        with suppress(psutil.NoSuchProcess):
            peak = max(peak, sum(process.memory_info().rss for process in alive) / 1e6)
        time.sleep(0.2)
    return peak


def on_servers(
    servers: Backends,
    argv: list[str],
    name: str,
    last: str,
    least: str,
    pages: Callable[[str], compare.Crawl],
    *,
    restarts: bool,
) -> Found:
    """Let two processes crawl; `last` asks for the instant of the last page, `least` for the pages of the idler process."""
    before, began = servers.state(), time.time()
    cpu, peak = work_together(argv, servers.environment(), name)
    after = servers.state()
    redis_cpu, postgres_cpu, trips, transactions, _ = (b - a for a, b in zip(before, after, strict=True))
    crawl = pages(servers.dsn)
    share = ask(servers.dsn, least) / crawl.urls
    wall = float(ask(servers.dsn, last)) - began
    memory = (after[4] - before[4]) / 1e6
    start = work_together(argv, servers.environment(), f"{name}-start")[0] if restarts else 0.0
    servers_used = redis_cpu, postgres_cpu, int(trips), int(transactions), memory, share
    return Figures(crawl.urls, wall, cpu, start, peak, *servers_used), crawl


def shared(seeds: list[str]) -> Found:
    """Submit a job, and let two workers do it."""
    with backends() as servers:
        submit = [GOSSAMER, "submit", *seeds, "--job", "bench", *FLAGS]
        subprocess.run(submit, env=servers.environment(), check=True)
        return on_servers(
            servers,
            [GOSSAMER, "worker", "--exit-when-done"],
            "gossamer",
            "SELECT max(committed_at) FROM log",
            LEAST.format(who="worker", pages="sum(records)", table="log"),
            lambda dsn: crawl_of(dsn, "SELECT record->>'url', status, record->'links' FROM pages"),
            restarts=True,
        )


def scrapy_redis(seeds: list[str]) -> Found:
    """Let two spiders share a queue; each begins with half of the seeds."""
    with backends() as servers:
        with psycopg.connect(servers.dsn) as connection:
            connection.execute(TABLE)
        for seed in seeds:
            servers.redis.ask("RPUSH", "bench:start_urls", msgspec.json.encode({"url": seed}).decode())
        spider = [sys.executable, "-m", "bench.scrapy_redis_spider.spider"]
        half = str(-(-len(seeds) // WORKERS))
        hosts = ",".join(str(urlsplit(seed).hostname) for seed in seeds)
        return on_servers(
            servers,
            [*spider, servers.redis.url, servers.dsn, half, hosts],
            "scrapy",
            "SELECT extract(epoch FROM max(at)) FROM public.items",
            LEAST.format(who="pid", pages="count(*)", table="public.items"),
            lambda dsn: crawl_of(dsn, "SELECT url, status, to_json(links) FROM public.items"),
            restarts=False,
        )


def crawl_of(dsn: str, question: str) -> compare.Crawl:
    rows = ask(dsn, f"SELECT json_agg(q) FROM ({question}) AS q(url, status, links)")
    spelled = compare.spelled
    links = {
        spelled(row["url"]): frozenset(map(spelled, row["links"])) for row in rows if row["status"] == 200
    }
    return compare.Crawl(len(rows), links)


def alone(seeds: list[str], workers: int) -> Found:
    """Crawl on one machine: the ledger in a file."""
    state, out = corpus.OUT / "state", corpus.OUT / f"shared-alone-{workers}.jsonl"
    shutil.rmtree(state, ignore_errors=True)
    out.unlink(missing_ok=True)
    more = ["--job", "bench", "--jobs-dir", str(state), "--workers", str(workers)]
    argv = [GOSSAMER, "crawl", *seeds, "-o", str(out), *more, *FLAGS]
    cost, again = (measure.run(argv, Path(f"{out}.log")) for _ in range(2))
    crawl = compare.read(out)
    return Figures(crawl.urls, cost.wall, cost.cpu, again.cpu, cost.peak_mb), crawl


CONTESTANTS: dict[str, Callable[[list[str]], Found]] = {
    ALONE: lambda seeds: alone(seeds, 1),
    TWO: lambda seeds: alone(seeds, 2),
    SHARED: shared,
    PEER: scrapy_redis,
}

Rounds = dict[str, list[Figures]]
WHOLE: Callable[[Figures], float] = attrgetter("ms")
RUNNING: Callable[[Figures], float] = attrgetter("running_ms")


def play(names: Sequence[str], seeds: list[str], rounds: int) -> tuple[Rounds, bool]:
    """Run the contestants in turn, so that a busy moment hits all alike; False where one found other pages."""
    costs: Rounds = {name: [] for name in names}
    same = True
    for number in range(rounds):
        reference: compare.Crawl | None = None
        for name in names:
            figures, crawl = CONTESTANTS[name](seeds)
            costs[name].append(figures)
            print(f"round {number + 1} {name}: {figures.wall:.1f} s, {figures}", flush=True)
            reference = reference or crawl
            found = compare.difference(reference, crawl)
            if not found.within(PEER_TOLERANCE if name == PEER else 0.0, len(reference.links)):
                same = False
                print(f"{name} DISAGREES: {found}")
    return costs, same


def each(figures: Sequence[Figures], of: Callable[[Figures], float]) -> Spread:
    return Spread.of([of(one) for one in figures])


def against(mine: Sequence[Figures], its: Sequence[Figures], of: Callable[[Figures], float]) -> Spread:
    """CPU for a page against another contestant in the same round, which cancels what the machine did meanwhile."""
    return Spread.of([of(one) / of(other) for one, other in zip(mine, its, strict=True)])


def summary(costs: Rounds) -> str:
    head = [
        "crawler",
        "pages/s",
        "pages per CPU-second",
        "CPU ms a page",
        "÷ one machine",
        "without starts",
        "÷ one machine",
        "PostgreSQL ms",
        "Redis ms",
        "Redis round trips a page",
        "pages a transaction",
        "Redis MB",
        "pages of the idler",
        "peak MB",
    ]
    return report.table(head, [row(name, figures, costs) for name, figures in costs.items()])


def row(name: str, figures: list[Figures], costs: Rounds) -> list[str]:
    has_servers = bool(figures[0].transactions)
    servers = [
        each(figures, lambda one: 1000 * one.postgres_cpu / one.pages).show(3),
        each(figures, lambda one: 1000 * one.redis_cpu / one.pages).show(3),
        each(figures, lambda one: one.round_trips / one.pages).show(2),
        each(figures, lambda one: one.pages / max(one.transactions, 1)).show(0),
        each(figures, lambda one: one.redis_mb).show(1),
        each(figures, lambda one: 100 * one.least_share).show(0) + " %",
    ]
    return [
        name,
        each(figures, lambda one: one.pages / one.wall).show(0),
        each(figures, lambda one: one.pages / one.cpu).show(0),
        each(figures, WHOLE).show(3),
        against(figures, costs[ALONE], WHOLE).show(2) if ALONE in costs else "",
        each(figures, RUNNING).show(3),
        against(figures, costs[ALONE], RUNNING).show(2) if ALONE in costs else "",
        *(servers if has_servers else [""] * len(servers)),
        each(figures, lambda one: one.peak_mb).show(0),
    ]


def verdict(costs: Rounds) -> list[tuple[str, str, bool]]:
    """Hold the medians against the bounds: what, how it is, and whether that is enough."""
    mine = costs[SHARED]
    times_alone = against(mine, costs[ALONE], WHOLE)
    times_running = against(mine, costs[ALONE], RUNNING)
    share = each(mine, lambda one: 100 * one.least_share)
    servers = each(mine, lambda one: one.servers_ms)
    trips = each(mine, lambda one: one.round_trips / one.pages)
    pages = each(mine, lambda one: one.pages / max(one.transactions, 1))
    rows = [
        ("CPU of workers ÷ one machine, at most", MAX_TIMES_ALONE, times_alone, times_alone.median <= MAX_TIMES_ALONE),
        ("the same without starts, at most", MAX_TIMES_ALONE, times_running, times_running.median <= MAX_TIMES_ALONE),
        ("PostgreSQL and Redis, ms a page, at most", MAX_SERVERS_MS, servers, servers.median <= MAX_SERVERS_MS),
        ("Redis round trips a page, at most", MAX_ROUND_TRIPS, trips, trips.median <= MAX_ROUND_TRIPS),
        ("pages a transaction, at least", MIN_PAGES_A_TRANSACTION, pages, pages.median >= MIN_PAGES_A_TRANSACTION),
        ("% of the pages that the idler worker did, at least", MIN_SHARE, share, share.median >= MIN_SHARE),
    ]  # fmt: skip
    if PEER in costs:
        times = against(costs[PEER], mine, WHOLE)
        what = "pages per CPU-second ÷ scrapy-redis, at least"
        rows.append((what, MIN_TIMES_PEER, times, times.median >= MIN_TIMES_PEER))
    return [(f"{what} {bound:g}", spread.show(2), kept) for what, bound, spread, kept in rows]


def note(pages: corpus.Corpus, costs: Rounds, remark: str) -> str:
    sample = costs[SHARED][0]
    return f"""
{len(HOSTS)} hosts on loopback, each with {pages.source} ({pages.pages:,} HTML files of {pages.mean_bytes / 1000:.0f} KB; {sample.pages:,} URLs in
all, those counted that do not exist), no delay, 8 requests at a time for each host and 64 for each process. Two worker
processes share one Redis (nothing on disk) and one PostgreSQL (fsync on), both on the same machine and new for each crawl.
nginx keeps to one core, everything else to none. Median of {len(costs[SHARED])} interleaved rounds (lowest to highest). {remark}{report.machine()}.

scrapy-redis runs two spiders with its scheduler, its duplicate filter and its priority queue, and an item pipeline that
inserts url, status, title and links of {BATCH_ITEMS} pages in a transaction. Gossamer writes its whole ledger: every URL with its
state, every fetch, every record. `gossamer crawl` does the same pages with SQLite, into a JSONL file.
*CPU ms a page* is user + system of the crawlers' processes; *without starts* leaves out what the same command takes
again when nothing is left to do, which scrapy-redis has no way to know. Round trips
are the reads Redis counts, transactions those that PostgreSQL counts as committed, from the start of the first worker
to the end of the last. *Redis MB* is its largest size less what it has when empty, *pages of the idler* the share of
all pages that the less busy one of the two processes did. The run fails unless all find the same pages and links;
scrapy-redis may differ on {PEER_TOLERANCE:.1%} of the pages, an allowance set after it was seen to differ on one page of each host, which
links to `http://<servername>/`: no URL for Gossamer.
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=len(HOSTS), help=f"so many of the {len(HOSTS)} hosts")
    parser.add_argument("--only", default="", help=f"contestants, as a,b: {', '.join(CONTESTANTS)}")
    parser.add_argument(
        "--remark", default="", help="a sentence for the docs, such as what else the machine did"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/bench.md")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    pages = corpus.build(only=PACKAGE)
    names = [name for name in given.only.split(",") if name] or list(CONTESTANTS)
    with serve(pages.root, also=HOSTS) as url:
        port = urlsplit(url).port
        seeds = [f"http://{host}:{port}/index.html" for host in HOSTS[: given.hosts]]
        costs, same = play(names, seeds, given.rounds)
    text = summary(costs)
    print(text)
    if not {SHARED, ALONE} <= costs.keys():
        raise SystemExit(0 if same else 1)
    bounds = verdict(costs)
    kept = report.table(["bound", "measured", "kept"], [[a, b, "yes" if c else "no"] for a, b, c in bounds])
    print(kept)
    if given.write_docs and same:
        remark = f"{given.remark.rstrip('.')}. " if given.remark else ""
        section = f"## A shared crawl\n\n{text}\n\n{kept}\n{note(pages, costs, remark)}"
        report.write_section("shared", section)
    raise SystemExit(0 if same and all(one for *_, one in bounds) else 1)


if __name__ == "__main__":
    main()
