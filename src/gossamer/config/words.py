"""The settings as keyword arguments of the Python API, so that type checkers and editors know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from gossamer.config.settings import DedupName, GroupName, ScopeName, SkipName


class HostWords(TypedDict, total=False):
    """What is sent to one origin and to no other."""

    headers: Mapping[str, str]
    username: str
    password: str
    password_env: str


class SettingWords(TypedDict, total=False):
    """Every setting by its word, the same as its flag: `--per-host 2` is `per_host=2`. A test keeps it complete."""

    scope: ScopeName
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    sort_query: bool
    strip_tracking: bool
    prefer: str | Sequence[str]
    dedup: DedupName
    bloom_error_rate: float
    bloom_urls: int
    shard: str
    max_links_per_page: int
    max_url_bytes: int | str
    traps: bool
    max_path_bytes: int | str
    max_path_segments: int
    max_segment_repeats: int
    max_segment_occurrences: int
    max_link_depth: int
    max_calendar_depth: int
    max_dates_per_path: int
    max_sessions_per_host: int
    max_query_bytes: int | str
    max_parameters: int
    max_parameter_sets_per_path: int
    max_queries_per_path: int
    max_urls_per_folder: int
    max_urls_per_section: int
    suspect_from_urls: int
    compare_every_pages: int
    remembered_pages: int
    min_suspect_urls: int
    suspects_per_halving: int
    max_host_labels: int
    max_label_occurrences: int
    max_hosts_per_domain: int
    remembered_urls: int
    remembered_prefixes: int
    depth: int | None
    max_pages: int | None
    max_pages_per_host: int | None
    time: float | None
    max_total_size: int | str | None
    robots: bool
    delay: float
    per_host: int
    group_by: GroupName
    jitter: float
    adaptive: bool
    response_factor: float
    max_adaptive_delay_seconds: float
    park_after_failures: int
    park_probes: int
    retries: int
    backoff_seconds: float
    max_backoff_seconds: float
    max_wait_seconds: float
    max_crawl_delay_seconds: float
    absurd_crawl_delay_seconds: float
    robots_probes: int
    robots_ttl_seconds: float
    robots_unreachable_days: float
    max_robots_bytes: int | str
    timeout: float
    connect_timeout_seconds: float
    min_bytes_per_second: int
    min_rate_seconds: float
    max_size: int | str
    max_decompression_ratio: int
    max_header_bytes: int | str
    max_header_count: int
    max_xml_depth: int
    max_xml_elements: int
    max_redirects: int
    keep_alive_seconds: float
    max_idle_connections: int
    allow_private: bool
    allow_network: str | Sequence[str]
    user_agent: str
    contact: str
    rotate_user_agent: str | Sequence[str]
    header: str | Sequence[str]
    cookies: bool
    proxy: str | Sequence[str]
    proxy_resolves: bool
    fields: str | Sequence[str]
    skip_noindex: bool
    csv_escape: bool
    near_duplicates: bool
    skip_duplicates: SkipName
    concurrency: int
    workers: int
    commit_pages: int
    commit_seconds: float
    max_uncommitted_pages: int
    grace_seconds: float
    window_urls: int
    scheduled_urls: int
    active_hosts: int
    seen_cache_urls: int
    lease_seconds: float
    lease_slack_seconds: float
    sweep_seconds: float
    max_crashes: int
    seed_batch_urls: int
    #: By origin: `{"https://intranet.example": {"username": "me", "password_env": "INTRANET"}}`.
    hosts: Mapping[str, HostWords]
