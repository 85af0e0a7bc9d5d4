"""From what a user asked for to a job: checked before anything is made, URLs canonical, paths absolute.

The command line and the Python API ask in the same words and get the same answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gossamer.config.job_file import JobSpec, Mode
from gossamer.config.nearest import suggestion
from gossamer.config.settings import Settings
from gossamer.errors import UsageError
from gossamer.fetch.identity import with_credentials
from gossamer.frontier.job_folder import JobFolder
from gossamer.model.page import link_to
from gossamer.model.record import FIELDS
from gossamer.model.url import without_user
from gossamer.parts import identity_of, url_policy
from gossamer.policy.address import parse_networks
from gossamer.policy.proxies import parse_proxy
from gossamer.policy.shard import WHOLE, parse_shard
from gossamer.sinks.spec import open_sink

_MAX_NAME_BYTES = 200
#: It is a part of keys in Redis. A dot in front is left to what is no job, and a dash to flags.
_SHARED_NAME = re.compile(r"\w[\w.-]*")
#: Settings that may hold a password.
_SECRET = frozenset({"header", "proxy", "hosts"})
#: Of a host or a file, in the name of a job.
_MAX_PLACE_BYTES = 60


def job_spec(
    mode: Mode, urls: Sequence[str], input_path: str, outputs: Sequence[str], settings: Settings
) -> JobSpec:
    """Return a job. Raises `UsageError` or `InvalidUrl` with what to change."""
    if not urls and not input_path:
        raise UsageError("no URL given: name one or more, a file with -i FILE, or - for standard input")
    if input_path not in {"", "-"}:
        input_path = _regular_file(input_path)
    policy = url_policy(settings.scope)
    seeds = tuple(dict.fromkeys(link_to(with_scheme(url), None, policy).url for url in urls))
    check_fields(settings.record.fields)
    for output in outputs:
        open_sink(output)  # touches nothing: what cannot be an output is refused before a job is made
    parse_networks(settings.fetch.allow_network)
    parse_shard(settings.scope.shard)
    for proxy in settings.fetch.proxy:
        parse_proxy(proxy)
    spec = JobSpec(mode, seeds, input_path, absolute(outputs), with_credentials(settings, urls))
    _check_text(spec)
    identity_of(spec)
    return spec


def check_fields(names: Sequence[str]) -> None:
    """Raise `UsageError` with the nearest field, or all there are, for a name that no record has."""
    for name in names:
        if name not in FIELDS:
            advice = suggestion(name, FIELDS) or f"; known are {', '.join(FIELDS)}"
            raise UsageError(f"--fields: there is no field {name!r}{advice}")


def with_scheme(url: str) -> str:
    """Return the URL; raises `UsageError` with a suggestion where its scheme was left out."""
    if "://" not in url and not url.startswith(("http:", "https:")):
        shown = without_user(url)
        raise UsageError(f"{shown!r} is not a URL; did you mean https://{shown} ?")
    return url


def absolute(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return outputs as the ledger knows them, each once."""
    return tuple(dict.fromkeys(path if path == "-" else str(Path(path).absolute()) for path in outputs))


def job_folder(jobs_dir: Path, name: str) -> JobFolder:
    """Return where a job of this name lives. Raises `UsageError` for a name that is not one of a folder."""
    # Names that begin with a dot are left to what is no job: `.`, `..` and hidden files. One with a dash is a flag.
    bad = not name.strip() or name.startswith((".", "-")) or not name.isprintable() or "/" in name
    if bad or len(name.encode()) > _MAX_NAME_BYTES:
        raise _unusable(name)
    return JobFolder(jobs_dir / name)


def shared_job_name(given: str, spec: JobSpec) -> str:
    """Return the name of a shared job: the one given, or its own. Raises `UsageError` for one no schedule can have."""
    name = given or default_job_name(spec)
    if not _SHARED_NAME.fullmatch(name) or len(name.encode()) > _MAX_NAME_BYTES:
        raise _unusable(name)
    return name


def _unusable(name: str) -> UsageError:
    return UsageError(
        f"--job {name[:80]!r} is not a usable name: take up to {_MAX_NAME_BYTES} bytes of letters, digits,"
        " dots and dashes, and neither of those in front"
    )


def default_job_name(spec: JobSpec) -> str:
    """Return a name that is the same for the same command: the first host, and a hash of the job's identity.

    The shards of one crawl have the same name but for its end, as in `-1of3`.
    """
    shard = parse_shard(spec.settings.scope.shard)
    whole = {key: value for key, value in spec.identity().items() if key != "shard"}
    digest = hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()[:6]
    policy = url_policy(spec.settings.scope)
    place = link_to(spec.seeds[0], None, policy).host if spec.seeds else Path(spec.input).stem or "stdin"
    plain = "".join(c if c.isalnum() or c in ".-" else "-" for c in place).strip(".-")
    plain = plain.encode()[:_MAX_PLACE_BYTES].decode(errors="ignore")
    part = "" if shard is WHOLE else f"-{shard.number}of{shard.count}"
    return f"{plain or 'job'}-{digest}{part}"


def _check_text(spec: JobSpec) -> None:
    """Refuse file names and texts that are no UTF-8: neither job.toml nor the ledger could hold them."""
    for word, value in spec.to_toml().items():
        for text in value if isinstance(value, list) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError:
                shown = "what was given" if word in _SECRET else repr(text)
                raise UsageError(f"{word}: {shown} is not UTF-8: give it another name") from None


def _regular_file(path: str) -> str:
    given = Path(path)
    if given.is_dir():
        raise UsageError(f"{path} is a folder: give the name of a file with one URL a line")
    if given.exists() and not given.is_file():
        raise UsageError(f"{path} is not a regular file: send it to standard input and say -i -")
    if not given.is_file():
        raise UsageError(f"there is no input file {path}")
    return str(given.resolve())
