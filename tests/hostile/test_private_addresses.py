"""Where every address answers, none is asked that is not public, however a crawl is led there."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from gossamer.model.url import canonicalise

from .world import PUBLIC, PUBLIC_V6, Ran, World, page, redirect, states

# Hosts as URLs spell them, and the address that a connection there would reach.
ADDRESSES = {
    "127.0.0.1": "127.0.0.1",
    "127.9.9.9": "127.9.9.9",
    "0.0.0.0": "127.0.0.1",
    "10.0.0.1": "10.0.0.1",
    "172.16.0.1": "172.16.0.1",
    "192.168.0.1": "192.168.0.1",
    "100.64.0.1": "100.64.0.1",
    "169.254.169.254": "169.254.169.254",
    "100.100.100.200": "100.100.100.200",
    "168.63.129.16": "168.63.129.16",
    "192.0.0.192": "192.0.0.192",
    "198.18.0.1": "198.18.0.1",
    "240.0.0.1": "240.0.0.1",
    "[::1]": "::1",
    "[::]": "::1",
    "[fd00::1]": "fd00::1",
    "[fd00:ec2::254]": "fd00:ec2::254",
    "[fec0::1]": "fec0::1",
    "[2001:db8::1]": "2001:db8::1",
    "[::ffff:10.0.0.2]": "10.0.0.2",
    "[0:0:0:0:0:ffff:a9fe:a9fe]": "169.254.169.254",
    "[::10.0.0.1]": "::10.0.0.1",
    "[::ffff:0:10.0.0.1]": "::ffff:0:10.0.0.1",
    "[64:ff9b::a00:1]": "64:ff9b::a00:1",
    "[64:ff9b::169.254.169.254]": "64:ff9b::a9fe:a9fe",
    "[2002:0a00:0001::]": "2002:a00:1::",
    "[2001:0:a00:1::]": "2001:0:a00:1::",
    "[2606:2800:220:1:0:5efe:10.0.0.1]": "2606:2800:220:1:0:5efe:a00:1",
}
SPELLINGS = {
    "2130706434": "127.0.0.2",
    "0x0a000003": "10.0.0.3",
    "0X7F.3": "127.0.0.3",
    "0300.0250.0.3": "192.168.0.3",
    "00000012.4": "10.0.0.4",
    "10.0x5": "10.0.0.5",
    "169.254.43517": "169.254.169.253",
    "%31%30.0.0.6": "10.0.0.6",
    "10%2e0%2E0%2e7": "10.0.0.7",
    "\uff11\uff10\uff0e\uff10\uff0e\uff10\uff0e\uff18": "10.0.0.8",  # full-width digits and stops
    "10。0｡0。9": "10.0.0.9",
    "①⓪.0.0.10": "10.0.0.10",
    "10.0.0.11.": "10.0.0.11",
    "10.0.0.12..": "10.0.0.12",
    "user:pw@10.0.0.13": "10.0.0.13",
    f"{PUBLIC}@10.0.0.14": "10.0.0.14",
    "10.0.0.15:80": "10.0.0.15",
    "1\t0.0.0.16": "10.0.0.16",
    "[FD00:0::0:2]": "fd00::2",
    "localhost": "127.0.0.1",
    "LOCALHOST.": "127.0.0.1",
    "printer.localhost": "127.0.0.1",
}
HOSTS = ADDRESSES | SPELLINGS
TARGETS = [f"http://{host}/secret" for host in HOSTS]
REACHED = {str(ip_address(address)) for address in HOSTS.values()}
FAST = (
    "--delay",
    "0",
    "--backoff-seconds",
    "0.02",
    "--progress",
    "none",
    "--jobs-dir",
    "jobs",
    "--job",
    "job",
)

# Each name of these is on the one public address; `links` is where the crawl is led astray from.
ZONE = {"public.example": [[PUBLIC]]} | {f"r{n}.example": [[PUBLIC]] for n in range(len(TARGETS))}
LINKS = {"public.example/": page(*TARGETS)}
REDIRECTS = {
    "public.example/": page(*(f"/to/{n}" for n in range(len(TARGETS)))),
    **{f"public.example/to/{n}": redirect(target) for n, target in enumerate(TARGETS)},
}
LATE_REDIRECTS = {
    "public.example/": page(*(f"/first/{n}" for n in range(len(TARGETS)))),
    **{f"public.example/first/{n}": redirect(f"http://r{n}.example/second") for n in range(len(TARGETS))},
    **{f"r{n}.example/second": redirect(target) for n, target in enumerate(TARGETS)},
}
ELEMENTS = {
    "public.example/": page(
        head="".join(
            f'<meta http-equiv=refresh content="0; url={t}"><link rel=canonical href="{t}"><iframe src="{t}"></iframe>'
            for t in TARGETS
        )
    )
}
WAYS = {"links": LINKS, "redirects": REDIRECTS, "late redirects": LATE_REDIRECTS, "elements": ELEMENTS}


def crawl(world: World, folder: Path, way: str, *given: str) -> Ran:
    seed = ("http://public.example/", "--scope", "any")
    return world.run(folder, "crawl", *seed, *FAST, *given, zone=ZONE, pages=WAYS[way])


def scrape(world: World, folder: Path, *given: str, zone: dict[str, list[list[str]]] | None = None) -> Ran:
    return world.run(folder, "scrape", *FAST, *given, zone=zone or ZONE)


def test_no_seed_however_spelled_leads_to_a_private_address(world: World, tmp_path: Path) -> None:
    ran = scrape(world, tmp_path, *TARGETS)
    assert ran.connections == {}
    assert states(tmp_path) == dict.fromkeys(map(canonicalise, TARGETS), "refused private_address")
    assert set(ran.asked) == set()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_a_public_page_says_leads_to_a_private_address(
    world: World, tmp_path: Path, way: str, workers: str
) -> None:
    ran = crawl(world, tmp_path, way, "--workers", workers)
    assert set(ran.connections) == {PUBLIC}
    found = states(tmp_path)
    assert found["http://public.example/"] == "fetched ok"
    wanted = dict.fromkeys(map(canonicalise, TARGETS), "refused private_address")
    assert {url: found.get(url) for url in wanted} == wanted


def test_a_scrape_that_follows_redirects_itself_does_not_follow_them_inside(
    world: World, tmp_path: Path
) -> None:
    inputs = [f"http://public.example/first/{n}" for n in range(len(TARGETS))]
    ran = world.run(tmp_path, "scrape", *inputs, *FAST, zone=ZONE, pages=LATE_REDIRECTS)
    assert set(ran.connections) == {PUBLIC}
    assert set(states(tmp_path).values()) == {"refused private_address"}


def test_no_redirect_of_a_robots_txt_leads_to_a_private_address(world: World, tmp_path: Path) -> None:
    robots = {f"r{n}.example/robots.txt": redirect(target) for n, target in enumerate(TARGETS)}
    seeds = [f"http://r{n}.example/" for n in range(len(TARGETS))]
    ran = world.run(tmp_path, "scrape", *seeds, *FAST, zone=ZONE, pages=robots)
    assert set(ran.connections) == {PUBLIC}
    assert set(ran.hits) == {f"GET {host}" for host in robots}
    assert set(states(tmp_path).values()) == {"refused private_address"}


def test_no_name_leads_to_a_private_address(world: World, tmp_path: Path) -> None:
    plain = [host.strip("[]") for host in ADDRESSES]
    zone = {f"n{n}.example": [[str(ip_address(address))]] for n, address in enumerate(plain)}
    ran = scrape(world, tmp_path, *(f"http://{name}/" for name in zone), zone=zone)
    assert ran.connections == {}
    assert set(states(tmp_path).values()) == {"refused private_address"}
    assert {asked.split()[0] for asked in ran.asked} == set(zone)


def test_allow_private_reaches_every_one_of_them(world: World, tmp_path: Path) -> None:
    ran = scrape(world, tmp_path, *TARGETS, "--allow-private")
    assert set(ran.connections) == REACHED
    assert set(states(tmp_path).values()) == {"fetched http_404"}


@pytest.mark.parametrize("way", WAYS)
def test_allow_network_reaches_what_it_names_and_nothing_else(world: World, tmp_path: Path, way: str) -> None:
    given = ("--allow-network", "10.0.0.0/29", "--allow-network", "fd00::1")
    ran = crawl(world, tmp_path, way, *given)
    allowed = {f"10.0.0.{n}" for n in range(1, 8)} | {"fd00::1"}
    assert set(ran.connections) == {PUBLIC} | allowed
    reached = {url for url, state in states(tmp_path).items() if state == "fetched http_404"}
    wanted = {
        canonicalise(f"http://{host}/secret")
        for host, ip in HOSTS.items()
        if ip in allowed or host == "[::ffff:10.0.0.2]"
    }
    assert reached == wanted


def test_a_network_allowed_later_revives_what_lies_in_it(world: World, tmp_path: Path) -> None:
    targets = ["http://10.0.0.1/", "http://10.0.0.2/", "http://[fd00::1]/", f"http://{PUBLIC}/"]
    first = scrape(world, tmp_path, *targets, "--allow-network", "10.0.0.1")
    assert set(first.connections) == {"10.0.0.1", PUBLIC}
    again = scrape(world, tmp_path, *targets, "--allow-network", "10.0.0.1")
    assert again.connections == {}
    more = scrape(world, tmp_path, *targets, "--allow-network", "10.0.0.1", "--allow-network", "fd00::/16")
    assert set(more.connections) == {"fd00::1"}
    assert states(tmp_path) == dict.fromkeys(targets, "fetched http_404") | {
        "http://10.0.0.2/": "refused private_address"
    }


@pytest.mark.parametrize("command", ["fetch", "robots"])
def test_commands_for_one_page_refuse_as_well_and_name_the_flags(
    world: World, tmp_path: Path, command: str
) -> None:
    refused = world.run(tmp_path, command, "http://169.254.169.254/latest/meta-data/")
    assert refused.connections == {}
    assert refused.code == 4
    assert "a metadata address; --allow-private or --allow-network 169.254.169.254 allows it" in refused.err
    pages = {"10.0.0.1/": page(), "10.0.0.1/robots.txt": "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"}
    allowed = world.run(
        tmp_path, command, "http://10.0.0.1/", "--allow-network", "10.0.0.1", "--delay", "0", pages=pages
    )
    assert (allowed.code, set(allowed.connections)) == (0, {"10.0.0.1"}), allowed.err


@pytest.mark.parametrize("command", ["crawl", "fetch", "robots"])
def test_what_is_no_network_is_a_usage_error_before_anything_is_made(
    world: World, tmp_path: Path, command: str
) -> None:
    ran = world.run(tmp_path, command, f"http://{PUBLIC}/", "--allow-network", "10.0.0.0/33")
    assert (ran.code, ran.connections) == (2, {})
    assert "--allow-network '10.0.0.0/33' is not a network; write 10.0.0.0/8" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_is_asked_for_no_private_address_but_an_allowed_one(world: World, tmp_path: Path) -> None:
    proxy = ("--proxy", "http://127.0.0.1:80", "--no-robots", "--retries", "0")
    zone = ZONE | {"inside.example": [["192.168.0.1"]], "outside.example": [[PUBLIC]]}
    targets = [*TARGETS, "http://inside.example/", "http://outside.example/"]
    refused = scrape(world, tmp_path, *targets, *proxy, zone=zone)
    assert set(refused.hits) == {f"CONNECT {PUBLIC}:80"}
    given = ("--allow-network", "192.168.0.1", "--allow-network", "fd00::2", "--job", "other")
    allowed = scrape(world, tmp_path, *targets, *proxy, *given, zone=zone)
    assert set(allowed.hits) == {f"CONNECT {PUBLIC}:80", "CONNECT 192.168.0.1:80", "CONNECT [fd00::2]:80"}


def test_public_addresses_are_reached_in_both_families(world: World, tmp_path: Path) -> None:
    ran = scrape(world, tmp_path, f"http://{PUBLIC}/", f"http://[{PUBLIC_V6}]/", f"http://[::ffff:{PUBLIC}]/")
    assert set(ran.connections) == {PUBLIC, PUBLIC_V6}
