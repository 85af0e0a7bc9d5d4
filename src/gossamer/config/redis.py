"""How a schedule is shared through Redis: its bounds, each with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.config.settings import FrontierSettings

#: The windows of a schedule that many workers share: more hosts at a time than one process needs, and fewer URLs of
#: each, so that the whole stays below 200 MB of Redis.
SHARED_FRONTIER = FrontierSettings(window_urls=128, scheduled_urls=200_000, active_hosts=20_000)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How workers reach the Redis they share, and what they leave there."""

    #: `redis://`, `rediss://` or `unix://`; with `cluster`, of any node of the cluster.
    url: str = "redis://127.0.0.1:6379/0"
    cluster: bool = False
    #: Every key begins with it: workers with different prefixes do not know of each other.
    prefix: str = "gossamer"
    #: Parts that may lie on different nodes. All workers must agree; 0 is 1 for a server and 16 for a cluster.
    partitions: int = 0
    #: A command that takes longer has failed.
    timeout_seconds: float = 5.0
    #: Longest time a report waits for others to be sent with.
    flush_seconds: float = 0.02
    #: First wait before a lost server is tried again; doubles each time, with jitter.
    reconnect_seconds: float = 0.1
    max_reconnect_seconds: float = 5.0
    #: How long a worker may take to fill a window before another is asked to.
    refill_seconds: float = 60.0
    #: How long a group of hosts must have been due before a worker takes it that is not the one it keeps to; 0 lets
    #: every worker take any.
    affinity_seconds: float = 0.5
    #: Reports in one call of a script.
    batch_reports: int = 256
    #: Entries one call of a script goes through where it must search.
    batch_entries: int = 500
