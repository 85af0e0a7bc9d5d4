"""How a schedule is shared through Redis: its bounds, each with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.config.settings import FrontierSettings, Section, option

#: The windows of a schedule that many workers share: more hosts at a time than one process needs, and fewer URLs of
#: each, so that the whole stays below 200 MB of Redis.
SHARED_FRONTIER = FrontierSettings(window_urls=128, scheduled_urls=200_000, active_hosts=20_000)
#: The number of a partition is a part of each lease's.
MAX_PARTITIONS = 1023


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RedisSettings(Section):
    """How a process reaches the Redis that shared jobs are scheduled by.

    All that share jobs must agree on the prefix and the partitions.
    """

    #: `redis://`, `rediss://` or `unix://`; of a cluster, that of any node.
    url: str = "redis://127.0.0.1:6379/0"
    #: Whether the server is a node of a cluster; None asks it.
    cluster: bool | None = None
    #: A request begins only if Redis was heard of in the last so many seconds, and a new epoch waits so much longer for
    #: those of the one before. No option: workers that disagree would not keep delays.
    slack_seconds: float = 3.0
    prefix: str = option(
        "gossamer",
        "every key in Redis begins with it: processes with different prefixes do not know of each other",
        name="redis_prefix",
        metavar="TEXT",
    )
    partitions: int = option(
        0, "parts of the schedule; 0 is 1 for a server and 16 for a cluster", name="redis_partitions"
    )
    timeout_seconds: float = option(
        5.0, "a command to Redis that takes longer has failed", name="redis_timeout"
    )
    flush_seconds: float = option(
        0.02,
        "longest time a report to Redis waits for others to be sent with",
        name="redis_flush_seconds",
        advanced=True,
    )
    reconnect_seconds: float = option(
        0.1,
        "first wait before a lost Redis is tried again; doubles each time, with jitter",
        name="redis_reconnect_seconds",
        advanced=True,
    )
    max_reconnect_seconds: float = option(
        5.0,
        "longest wait before a lost Redis is tried again",
        name="redis_max_reconnect_seconds",
        advanced=True,
    )
    refill_seconds: float = option(
        60.0,
        "how long a worker may take to fill a window before another is asked to; never longer than a lease",
        name="redis_refill_seconds",
        advanced=True,
    )
    affinity_seconds: float = option(
        0.5,
        "how long a host must have been due before a worker takes it that is not the one it keeps to; 0 lets every"
        " worker take any",
        name="redis_affinity_seconds",
        advanced=True,
    )
    batch_reports: int = option(
        256, "reports in one call of a script", name="redis_batch_reports", advanced=True
    )
    batch_entries: int = option(
        500,
        "entries one call of a script goes through where it must search",
        name="redis_batch_entries",
        advanced=True,
    )
