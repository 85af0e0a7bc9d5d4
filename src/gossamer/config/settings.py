"""Every setting, once: its default, its unit in its name, its help, its flag, and whether it is a job's identity.

A setting's flag, its key in a TOML file and its environment variable are the same word: `--per-host`,
`per_host`, `GOSSAMER_PER_HOST`. The command line is generated from these sections, and so is the reference
in `docs/settings.md`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from gossamer.config.hosts import HostSettings

SkipName = Literal["none", "exact", "near"]
DedupName = Literal["exact", "bloom"]
ScopeName = Literal["page", "prefix", "host", "domain", "any"]
GroupName = Literal["host", "domain", "ip"]


@dataclass(frozen=True, slots=True)
class Option:
    """What the command line needs to know of a setting besides its type and default."""

    help: str
    #: A one-letter flag, such as `-d`.
    short: str = ""
    #: The word users type, where it differs from the field name (`max_body_bytes` is `--max-size`).
    name: str = ""
    #: Part of a job's identity: fixed when the job is made.
    identity: bool = False
    metavar: str = ""
    #: Shown only by `--help-all`: for those who tune.
    advanced: bool = False


def option(default: Any, text: str, **details: Any) -> Any:
    """Declare a setting with its default and its help."""
    return field(default=default, metadata={"option": Option(text, **details)})


class Section:
    """What all sections do alike: written once, because generating it for each takes every command some milliseconds."""

    __slots__ = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, item.name) for item in dataclasses.fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        items = zip(dataclasses.fields(self), self._values(), strict=True)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{item.name}={value!r}' for item, value in items)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScopeSettings(Section):
    """Which URLs belong to the job."""

    scope: ScopeName = option("host", "how far links are followed from the seeds", identity=True)
    include: tuple[str, ...] = option(
        (), "follow only URLs that match one of these globs", identity=True, metavar="GLOB"
    )
    exclude: tuple[str, ...] = option(
        (), "never fetch URLs that match one of these globs", identity=True, metavar="GLOB"
    )
    sort_query: bool = option(
        True, "treat URLs that differ only in the order of query parameters as one", identity=True
    )
    strip_tracking: bool = option(
        False, "drop tracking parameters such as utm_source and fbclid", identity=True
    )
    prefer: tuple[str, ...] = option(
        (), "fetch URLs that match these globs before the others of a host", metavar="GLOB"
    )
    dedup: DedupName = option(
        "exact",
        "how URLs are known again; `bloom` keeps a few bytes of a finished URL, and takes a few new ones for known",
        identity=True,
    )
    bloom_error_rate: float = option(
        0.0001, "share of new URLs that `--dedup bloom` may take for known", identity=True, advanced=True
    )
    bloom_urls: int = option(
        1_000_000,
        "URLs that the filter of `--dedup bloom` is first made for; it grows",
        identity=True,
        advanced=True,
    )
    shard: str = option(
        "",
        "crawl only part I of N: each host belongs to one of N jobs, whichever machine they run on",
        identity=True,
        metavar="I/N",
    )
    max_links_per_page: int = option(10_000, "links taken from one page at most", advanced=True)
    max_url_bytes: int = option(4096, "URLs longer than this are ignored", advanced=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrapSettings(Section):
    """From when on URLs look like a place without end. Counts are those of a run and of a worker process."""

    traps: bool = option(True, "refuse URLs of endless calendars, loops, sessions and the like")
    max_path_bytes: int = option(1024, "longest path", advanced=True)
    max_path_segments: int = option(25, "segments of a path at most", advanced=True)
    max_segment_repeats: int = option(
        2, "how often the same segments may stand in a row, as in /a/b/a/b", advanced=True
    )
    max_segment_occurrences: int = option(4, "how often one segment may stand in a path", advanced=True)
    max_link_depth: int = option(
        1000, "links away from a seed at most, whatever the depth limit", advanced=True
    )
    max_calendar_depth: int = option(366, "links away from a seed at most for pages of dates", advanced=True)
    max_dates_per_path: int = option(3000, "pages of dates under one path", advanced=True)
    max_sessions_per_host: int = option(
        1, "session ids in URLs; the first is taken for the crawler's own", advanced=True
    )
    max_query_bytes: int = option(2048, "longest query", advanced=True)
    max_parameters: int = option(20, "parameters of a query at most", advanced=True)
    max_parameter_sets_per_path: int = option(100, "choices of parameters for one path", advanced=True)
    max_queries_per_path: int = option(20_000, "queries of one path", advanced=True)
    max_urls_per_folder: int = option(50_000, "URLs in one folder", advanced=True)
    max_urls_per_section: int = option(500_000, "URLs below the first segment of a path", advanced=True)
    suspect_from_urls: int = option(
        200,
        "URLs of a folder, path or section from which on its pages are compared with each other",
        advanced=True,
    )
    compare_every_pages: int = option(
        16, "of so many pages there, one is compared until one is suspect, then all are", advanced=True
    )
    remembered_pages: int = option(20_000, "pages that others are compared with", advanced=True)
    min_suspect_urls: int = option(
        200, "URLs left to a folder, path or section of nothing but suspect pages", advanced=True
    )
    suspects_per_halving: int = option(
        4, "suspect pages, more than others, that halve what is left", advanced=True
    )
    max_host_labels: int = option(10, "labels of a host name at most", advanced=True)
    max_label_occurrences: int = option(2, "how often one label may stand in a host name", advanced=True)
    max_hosts_per_domain: int = option(1000, "hosts of one registrable domain", advanced=True)
    remembered_urls: int = option(50_000, "URLs that count once however often they are found", advanced=True)
    remembered_prefixes: int = option(20_000, "prefixes whose counts are kept", advanced=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LimitSettings(Section):
    """When to stop."""

    depth: int | None = option(None, "follow links at most N steps away from a seed", short="-d", metavar="N")
    max_pages: int | None = option(None, "stop after N pages", short="-n", metavar="N")
    max_pages_per_host: int | None = option(None, "fetch at most N pages from one host", metavar="N")
    time: float | None = option(None, "stop after this many seconds", metavar="SECONDS")
    max_total_bytes: int | None = option(
        None, "stop after this many bytes were received", name="max_total_size", metavar="BYTES"
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PolitenessSettings(Section):
    """How gently hosts are treated."""

    robots: bool = option(True, "obey robots.txt")
    delay: float = option(1.0, "seconds between the starts of two requests to one host", metavar="SECONDS")
    per_host: int = option(1, "requests to one host at a time", metavar="N")
    group_by: GroupName = option("host", "what shares one delay: a host, a registrable domain, or an address")
    jitter: float = option(0.1, "share of the delay added at random", advanced=True)
    adaptive: bool = option(
        True,
        "slow down where a host answers slowly, with 429 or 503, or not at all, and then carefully recover",
    )
    response_factor: float = option(
        2.0, "a host rests at least this many times as long as its last answer took", advanced=True
    )
    max_adaptive_delay_seconds: float = option(
        60.0, "longest delay a host is given for being slow or in trouble", advanced=True
    )
    park_after_failures: int = option(
        5, "failures in a row after which a host is parked and only probed; 0 never does", advanced=True
    )
    park_probes: int = option(
        3, "probes of a parked host that may fail before its URLs are held", advanced=True
    )
    retries: int = option(2, "further attempts after a transient failure", metavar="N")
    backoff_seconds: float = option(
        1.0, "first wait after a transient failure; doubles each time", advanced=True
    )
    max_backoff_seconds: float = option(60.0, "longest wait of the back-off", advanced=True)
    max_wait_seconds: float = option(
        300.0, "a host that asks for a longer wait has its URLs held", advanced=True
    )
    max_crawl_delay_seconds: float = option(
        60.0, "a longer Crawl-delay or Request-rate is cut to this", advanced=True
    )
    absurd_crawl_delay_seconds: float = option(
        86_400.0, "a Crawl-delay or Request-rate beyond this is a mistake and ignored", advanced=True
    )
    robots_probes: int = option(
        3, "tries to fetch a robots.txt before the URLs of its origin are held", advanced=True
    )
    robots_ttl_seconds: float = option(86_400.0, "how long a robots.txt is used", advanced=True)
    robots_unreachable_days: float = option(
        0.0,
        "days after which a robots.txt that cannot be had is no longer waited for: its last copy is used, or all is"
        " allowed; 0 waits for ever",
        advanced=True,
    )
    max_robots_bytes: int = option(512_000, "bytes of a robots.txt that are read", advanced=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FetchSettings(Section):
    """How pages are fetched, and the bounds on what a server may send."""

    timeout_seconds: float = option(30.0, "total seconds for one page", name="timeout", metavar="SECONDS")
    connect_timeout_seconds: float = option(10.0, "seconds for one connection to be made", advanced=True)
    min_bytes_per_second: int = option(
        50, "cut replies that come slower than this; 0 waits for the timeout", advanced=True
    )
    min_rate_seconds: float = option(
        10.0, "how long a reply may stay below that rate, counted from its first byte", advanced=True
    )
    max_body_bytes: int = option(
        10_000_000, "largest page, in bytes, before and after decompression", name="max_size", metavar="BYTES"
    )
    max_decompression_ratio: int = option(
        300,
        "a page over 1 MB that grows more than this when decompressed is a bomb; 0 allows any",
        advanced=True,
    )
    max_header_bytes: int = option(65_536, "largest response head", advanced=True)
    max_header_count: int = option(200, "header lines in a response at most", advanced=True)
    max_xml_depth: int = option(100, "elements within elements that are read of an XML page", advanced=True)
    max_xml_elements: int = option(1_000_000, "elements that are read of an XML page", advanced=True)
    max_redirects: int = option(10, "redirects followed in one chain", advanced=True)
    keep_alive_seconds: float = option(15.0, "how long an idle connection is kept", advanced=True)
    max_idle_connections: int = option(256, "idle connections kept in all", advanced=True)
    allow_private: bool = option(False, "allow loopback, private and link-local addresses")
    allow_network: tuple[str, ...] = option(
        (), "allow the addresses of this network, whatever they are; repeatable", metavar="CIDR"
    )
    user_agent: str = option("", "name sent to servers and matched in robots.txt", metavar="TEXT")
    contact: str = option(
        "", "e-mail or URL added to the user agent, so that site owners can reach you", metavar="TEXT"
    )
    rotate_user_agent: tuple[str, ...] = option(
        (), "fetch pages under these names in turn; robots.txt still goes by --user-agent", metavar="TEXT"
    )
    header: tuple[str, ...] = option(
        (),
        "extra request header; Authorization and Cookie go to the origins of the given URLs alone",
        short="-H",
        metavar="'NAME: VALUE'",
    )
    cookies: bool = option(True, "keep cookies for each host")
    proxy: tuple[str, ...] = option(
        (), "send requests through this proxy (http, https, socks5); repeat for rotation", metavar="URL"
    )
    proxy_resolves: bool = option(
        False, "let the proxy resolve host names (then addresses cannot be checked)"
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordSettings(Section):
    """What a page record holds."""

    fields: tuple[str, ...] = option((), "write only these fields of a record", metavar="A,B")
    skip_noindex: bool = option(False, "write no record for pages marked noindex")
    csv_escape: bool = option(True, "put an apostrophe before text in a CSV that a spreadsheet would run")
    near_duplicates: bool = option(
        False,
        "add a field `simhash` to records: pages that say nearly the same differ in 3 of its 64 bits at most",
    )
    skip_duplicates: SkipName = option(
        "none",
        "write one record of each content; `near` also skips pages that say nearly the same",
        identity=True,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EngineSettings(Section):
    """How much happens at once."""

    concurrency: int = option(64, "requests at a time, over all hosts", short="-c", metavar="N")
    workers: int = option(1, "processes that fetch and extract", metavar="N")
    commit_pages: int = option(100, "pages that make a commit due", advanced=True)
    commit_seconds: float = option(0.5, "longest time a page waits for its commit", advanced=True)
    max_uncommitted_pages: int = option(
        1000, "pages waiting for their commit before fetching pauses", advanced=True
    )
    grace_seconds: float = option(
        30.0, "time given to requests under way after the first Ctrl-C", advanced=True
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrontierSettings(Section):
    """Bounds of what the scheduler keeps in memory."""

    window_urls: int = option(256, "URLs of one host kept at hand", advanced=True)
    scheduled_urls: int = option(50_000, "URLs kept at hand over all hosts, shared among them", advanced=True)
    active_hosts: int = option(2000, "hosts scheduled at the same time", advanced=True)
    seen_cache_urls: int = option(100_000, "fingerprints kept in memory to spare the ledger", advanced=True)
    lease_seconds: float = option(60.0, "how long a worker may hold a URL", advanced=True)
    lease_slack_seconds: float = option(
        10.0, "a lease is at least this much longer than the timeout of a page and its commit", advanced=True
    )
    sweep_seconds: float = option(
        5.0, "how often the ledger is searched for hosts missing from the schedule", advanced=True
    )
    max_crashes: int = option(
        3, "a URL that took its worker down this often, alone, is failed", advanced=True
    )
    seed_batch_urls: int = option(5000, "URLs added in one transaction while seeding", advanced=True)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a job runs by."""

    scope: ScopeSettings = field(default_factory=ScopeSettings)
    traps: TrapSettings = field(default_factory=TrapSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    politeness: PolitenessSettings = field(default_factory=PolitenessSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    frontier: FrontierSettings = field(default_factory=FrontierSettings)
    #: No section of settings but the tables of a file: what is sent to some origins alone.
    hosts: tuple[HostSettings, ...] = ()


def every_section() -> list[tuple[str, type[Any]]]:
    """List the sections of the settings, by name, in the order they are declared."""
    return [
        (item.name, item.default_factory)  # type: ignore[misc]
        for item in dataclasses.fields(Settings)
        if item.default_factory is not dataclasses.MISSING
    ]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its place: what the loader, the command line and the reference iterate over."""

    section: str
    field: str
    option: Option
    default: Any
    type: str

    @property
    def word(self) -> str:
        """The word users know it by, in snake case."""
        return self.option.name or self.field


def every_setting() -> list[Setting]:
    """List all settings of jobs in the order they are declared."""
    return [setting for name, section in every_section() for setting in settings_of(name, section)]


def settings_of(name: str, section: type[Any]) -> list[Setting]:
    """List the settings of a section. What was declared without `option` is none."""
    return [
        Setting(name, item.name, item.metadata["option"], item.default, str(item.type))
        for item in dataclasses.fields(section)
        if "option" in item.metadata
    ]
