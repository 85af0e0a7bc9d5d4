"""Which headers go to which origin, and what of the config file they are made from."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config.hosts import HostSettings, read_hosts
from gossamer.config.job_file import JobSpec, spec_of, write_job_file
from gossamer.config.load import load_settings
from gossamer.config.settings import FetchSettings, Settings
from gossamer.errors import InvalidUrl, UsageError
from gossamer.fetch.identity import build_identity, user_agent, with_credentials
from gossamer.model.outcome import Found
from gossamer.model.request import Request, Source
from gossamer.model.url import canonicalise, without_user
from gossamer.policy.identity import Identity, with_cookies

NAMED = "http://named.example"
SECRET = "s3same-0pen"
GIVEN = (("User-Agent", "Bot/1"), ("X-Team", "looms"), ("Authorization", SECRET), ("Cookie", f"id={SECRET}"))


def ask(url: str, **details: Any) -> Request:
    return Request(url, 1, "host", **details)


def sent(identity: Identity, request: Request) -> dict[str, str]:
    return dict(identity.for_page(request))


# -- headers given with -H -------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [f"{NAMED}/", f"{NAMED}/deep/link?q=1"])
def test_the_origins_of_named_urls_get_all_that_was_given(url: str) -> None:
    identity = Identity(GIVEN, named=[NAMED])
    assert sent(identity, ask(url, depth=3)) == dict(GIVEN)
    assert dict(identity.for_robots(f"{NAMED}/robots.txt")) == dict(GIVEN)


@pytest.mark.parametrize(
    "url",
    [
        "https://named.example/",
        "http://named.example:8080/",
        "http://www.named.example/",
        "http://named.example.evil.example/",
        "http://evil.example/http://named.example/",
    ],
)
def test_another_scheme_host_or_port_gets_no_secret(url: str) -> None:
    identity = Identity(GIVEN, named=[NAMED])
    public = {"User-Agent": "Bot/1", "X-Team": "looms"}
    for request in (ask(url, source=Source.SEED), ask(url, parent=f"{NAMED}/"), ask(f"{NAMED}/", hop=url)):
        assert sent(identity, request) == public
    assert dict(identity.for_robots(url)) == public


@pytest.mark.parametrize("name", ["Authorization", "authorization", "COOKIE", "Proxy-Authorization"])
def test_secrets_are_known_by_name_in_any_case(name: str) -> None:
    identity = Identity(((name, SECRET),), named=[NAMED])
    assert sent(identity, ask("http://other.example/")) == {}


def test_a_proxy_password_is_for_no_server() -> None:
    identity = Identity((("Proxy-Authorization", SECRET),), named=[NAMED], inputs=True)
    own = ask(f"{NAMED}/", source=Source.SEED, headers=(("proxy-authorization", SECRET),))
    assert sent(identity, own) == {}
    assert identity.for_robots(f"{NAMED}/robots.txt") == ()


# -- input files -----------------------------------------------------------------------------------------


def test_an_input_gets_the_secrets_itself_and_what_it_links_to_does_not() -> None:
    identity = Identity(GIVEN, inputs=True)
    assert sent(identity, ask("http://a.example/", source=Source.SEED))["Authorization"] == SECRET
    assert "Authorization" not in sent(identity, ask("http://a.example/linked", depth=1))
    assert "Authorization" not in dict(identity.for_robots("http://a.example/robots.txt"))


def test_an_input_keeps_its_secrets_until_it_leaves_its_origin_and_does_not_get_them_back() -> None:
    identity = Identity(GIVEN, inputs=True)
    start = ask("http://a.example/", source=Source.SEED)
    within = msgspec.structs.replace(start, hop="http://a.example/2", redirected_from=(start.url,))
    away = msgspec.structs.replace(within, hop="http://b.example/", redirected_from=(start.url, within.hop))
    back = msgspec.structs.replace(
        within, hop="http://a.example/3", redirected_from=(*away.redirected_from, away.hop)
    )
    got = ["Authorization" in sent(identity, request) for request in (start, within, away, back)]
    assert got == [True, True, False, False]


def test_the_target_of_an_inputs_redirect_stands_for_it_only_within_its_origin() -> None:
    identity = Identity(GIVEN, inputs=True)
    start = ask("http://a.example/", source=Source.SEED)

    def target(url: str, of: Request) -> Request:
        found = Found(ask(url, source=Source.REDIRECT, redirected_from=(*of.redirected_from, of.url)))
        return identity.passed_on(of, found).request

    second = target("http://a.example/2", start)
    third = target("http://a.example/3", second)
    away = target("http://b.example/", second)
    further = target("http://b.example/2", away)
    linked = target("http://a.example/4", ask("http://a.example/linked"))
    got = ["Authorization" in sent(identity, request) for request in (second, third, away, further, linked)]
    assert got == [True, True, False, False, False]
    assert (away.metadata, linked.metadata) == ({}, {})


# -- headers of one request ------------------------------------------------------------------------------


def test_a_requests_own_secrets_go_to_the_origin_of_its_url_alone() -> None:
    own = (("X-Own", "1"), ("Authorization", SECRET), ("Cookie", SECRET))
    request = ask("http://a.example/", headers=own)
    assert sent(Identity(()), request) == dict(own)
    for hop in ("http://b.example/", "https://a.example/", "http://a.example:81/"):
        assert sent(Identity(()), msgspec.structs.replace(request, hop=hop)) == {"X-Own": "1"}


# -- cookies beside those of the jar ---------------------------------------------------------------------


def test_there_is_one_cookie_header_and_the_newer_of_a_name_counts() -> None:
    assert with_cookies((("A", "1"),), "x=1; y=2") == (("A", "1"), ("Cookie", "x=1; y=2"))
    both = with_cookies((("cookie", "x=old; z=3;"), ("A", "1")), "x=1; y=2")
    assert both == (("A", "1"), ("Cookie", "z=3; x=1; y=2"))


# -- names -----------------------------------------------------------------------------------------------


def test_pages_are_fetched_under_the_given_names_in_turn_and_robots_txt_under_our_own() -> None:
    settings = Settings(fetch=FetchSettings(rotate_user_agent=("One/1 (a, b)", "Two/2")))
    identity = build_identity(settings, [f"{NAMED}/"])
    names = [sent(identity, ask(f"{NAMED}/"))["User-Agent"] for _ in range(3)]
    assert names == ["One/1 (a, b)", "Two/2", "One/1 (a, b)"]
    own = dict(identity.for_robots(f"{NAMED}/robots.txt"))["User-Agent"]
    assert own == user_agent(settings.fetch)
    assert own.startswith("Gossamer/")


# -- hosts of the config file ----------------------------------------------------------------------------

ORIGIN = "https://intranet.example:8443"
TOML = f"""
delay = 2
[hosts."{ORIGIN}"]
headers = {{ "X-Api-Key" = "{SECRET}" }}
username = "me"
password_env = "INTRANET_PASSWORD"
[hosts."http://plain.example/"]
username = "you"
password = "{SECRET}"
"""


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


def load_toml(folder: Path, text: str) -> Settings:
    path = folder / "gossamer.toml"
    path.write_text(text, "utf-8")
    return load_settings({}, {}, path)[0]


def test_a_file_says_what_one_origin_alone_is_sent(tmp_path: Path) -> None:
    settings = load_toml(tmp_path, TOML)
    identity = build_identity(settings, [], environment={"INTRANET_PASSWORD": "pä:ss"})
    for headers in (identity.for_page(ask(f"{ORIGIN}/x")), identity.for_robots(f"{ORIGIN}/robots.txt")):
        assert dict(headers)["X-Api-Key"] == SECRET
        assert dict(headers)["Authorization"] == basic("me:pä:ss")
    plain = sent(identity, ask("http://plain.example/"))
    assert (plain["Authorization"], "X-Api-Key" in plain) == (basic(f"you:{SECRET}"), False)
    for other in ("https://intranet.example/", "http://intranet.example:8443/", "https://plain.example/"):
        assert not {"X-Api-Key", "Authorization"} & set(sent(identity, ask(other)))


def test_what_a_file_has_for_an_origin_beats_what_was_given_for_all() -> None:
    hosts = {NAMED: (("authorization", "theirs"),)}
    identity = Identity(GIVEN, named=[NAMED], hosts=hosts, inputs=True)
    for request in (ask(f"{NAMED}/"), ask(f"{NAMED}/", source=Source.SEED)):
        headers = sent(identity, request)
        assert (headers.get("Authorization"), headers["authorization"]) == (None, "theirs")


def test_an_origin_counts_however_it_is_spelled() -> None:
    settings = Settings(
        hosts=read_hosts({"HTTPS://Intranet.Example:443": {"headers": {"X-Key": "1"}}}, "file")
    )
    assert sent(build_identity(settings, []), ask("https://intranet.example/"))["X-Key"] == "1"


def test_a_job_file_keeps_hosts_and_of_a_password_in_the_environment_its_name_alone(tmp_path: Path) -> None:
    spec = JobSpec("crawl", (f"{NAMED}/",), settings=load_toml(tmp_path, TOML))
    write_job_file(tmp_path / "job.toml", spec)
    again = spec_of(tmp_path / "job.toml")
    assert set(again.settings.hosts) == {
        HostSettings(ORIGIN, (("X-Api-Key", SECRET),), "me", "", "INTRANET_PASSWORD"),
        HostSettings("http://plain.example", (), "you", SECRET),
    }
    assert again == spec
    assert (tmp_path / "job.toml").stat().st_mode & 0o777 == 0o600


def test_an_entry_of_the_file_beats_the_one_a_job_has_kept(tmp_path: Path) -> None:
    path = tmp_path / "gossamer.toml"
    path.write_text('[hosts."http://a.example"]\nusername = "new"\n', "utf-8")
    kept = {"http://a.example": {"username": "old"}, "http://b.example": {"username": "b"}}
    settings, sources = load_settings({"hosts": kept}, {}, path)
    assert {host.origin: host.username for host in settings.hosts} == {
        "http://a.example": "new",
        "http://b.example": "b",
    }
    assert sources["hosts"] == "flag"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ({"intranet.example": {}}, r'write it as \[hosts."https://intranet.example"\]'),
        ({"intranet.example:8443": {}}, r'write it as \[hosts."https://intranet.example:8443"\]'),
        ({"https://a.example/path": {}}, r'is not an origin; write it as \[hosts."https://a.example"\]'),
        ({"ftp://a.example": {}}, "is not an origin"),
        ({f"https://me:{SECRET}@a.example": {}}, "write username and password below it"),
        ({"https://a.example": {"user": "me"}}, "unknown key 'user'; did you mean 'username'"),
        ({"https://a.example": {"pasword": SECRET}}, "did you mean 'password'"),
        ({"https://a.example": SECRET}, "is not a table"),
        ({"https://a.example": {"headers": SECRET}}, "headers is not a table"),
        ({"https://a.example": {"headers": {"X": [SECRET]}}}, "the header X is not a text"),
        ({"https://a.example": {"username": "me", "password": 5}}, "password is not a text"),
        ({"https://a.example": {"password": SECRET}}, "password without a username"),
        ({"https://a.example": {"username": "a:b"}}, "colon"),
        (
            {"https://a.example": {"username": "a", "password": SECRET, "password_env": "X"}},
            "both password and password_env",
        ),
        (
            {"https://a.example": {"username": "a", "headers": {"authorization": SECRET}}},
            "both a username and an Authorization header",
        ),
        ({"https://a.example": {"username": "a", "password_env": "NOT_SET"}}, "environment has no NOT_SET"),
        ({"https://a.example": {"headers": {"X Y": SECRET}}}, "is not a header name"),
        ({"https://a.example": {"headers": {"Host": SECRET}}}, "set by the fetcher"),
        ({"https://a.example": {"headers": {"X": f"{SECRET}\r\nY: 1"}}}, "line break"),
        ({"https://a.example": {"headers": {"User-Agent": SECRET}}}, "user_agent"),
        ({"https://a.example:99999": {}}, "not an origin that can be asked"),
        (SECRET, "not a table by origin"),
    ],
)
def test_a_mistake_in_hosts_is_one_line_that_says_what_to_write_and_no_secret(
    hosts: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build_identity(load_settings({"hosts": hosts}, {}, None)[0], [], environment={})
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


_ANY = st.recursive(
    st.one_of(st.text(), st.integers(), st.booleans()),
    lambda inner: st.dictionaries(st.sampled_from(["headers", "username", "password", "https://a.example", "x"]), inner),
)  # fmt: skip


@given(_ANY)
def test_any_hosts_load_or_are_a_usage_error(value: object) -> None:
    with suppress(UsageError):
        build_identity(load_settings({"hosts": value}, {}, None)[0], [], environment={})


def test_the_environment_cannot_hold_hosts() -> None:
    with pytest.raises(UsageError, match="config file"):
        load_settings({}, {"GOSSAMER_HOSTS": "x"}, None)


def test_no_repr_shows_a_secret() -> None:
    host = HostSettings(ORIGIN, (("X-Key", SECRET),), "me", SECRET)
    assert SECRET not in repr(Settings(hosts=(host,)))


# -- credentials in URLs ---------------------------------------------------------------------------------


def test_a_user_in_a_url_becomes_an_entry_for_its_origin() -> None:
    settings = with_credentials(Settings(), ["http://m%65:p%40ss@Named.example:80/x", "http://b.example/"])
    assert settings.hosts == (HostSettings(NAMED, (), "me", "p@ss"),)
    identity = build_identity(settings, [f"{NAMED}/x", "http://b.example/"])
    assert sent(identity, ask(f"{NAMED}/y"))["Authorization"] == basic("me:p@ss")
    assert "Authorization" not in sent(identity, ask("http://b.example/"))


def test_a_user_in_a_url_beats_the_file_whose_other_headers_stay() -> None:
    kept = HostSettings(NAMED, (("X-Key", "1"), ("Authorization", "theirs")))
    settings = with_credentials(Settings(hosts=(kept,)), ["http://me@named.example/"])
    assert settings.hosts == (HostSettings(NAMED, (("X-Key", "1"),), "me", ""),)


def test_two_users_of_one_origin_are_an_error_without_their_passwords() -> None:
    urls = [f"http://a:{SECRET}@named.example/", f"http://b:{SECRET}@named.example/2"]
    with pytest.raises(UsageError, match="different users") as caught:
        with_credentials(Settings(), urls)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{SECRET}@bad host/",
        f"http://me:{SECRET}/x@named.example/",
        f"me:{SECRET}@named.example",
        f"ftp://me:{SECRET}@named.example/",
        f"https:\\\\me:{SECRET}@[bad",
        f"http://a@b:{SECRET}@bad host",
    ],
)
def test_no_error_about_a_url_shows_its_password(text: str) -> None:
    assert SECRET not in without_user(text)
    with pytest.raises(InvalidUrl) as caught:
        canonicalise(text)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("fetch", "message"),
    [
        (FetchSettings(header=(f"Authorization Bearer {SECRET}",)), "-H 'Authorization'… is not a header"),
        (FetchSettings(header=(f"Proxy-Authorization: {SECRET}",)), "--proxy http://user:password@host:port"),
        (FetchSettings(header=(f"Cookie: a\r\nB: {SECRET}",)), "is not a header"),
        (FetchSettings(header=("User-Agent: a",), rotate_user_agent=("b",)), "cannot both be given"),
        (FetchSettings(rotate_user_agent=("a\r\nb",)), "--rotate-user-agent: .* line break"),
    ],
)
def test_a_header_that_cannot_be_sent_is_an_error_without_its_value(
    fetch: FetchSettings, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build_identity(replace(Settings(), fetch=fetch), [])
    assert SECRET not in str(caught.value)
