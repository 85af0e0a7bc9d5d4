"""Names become addresses only if every one of them may be connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from gossamer.fetch.resolver import ResolveFailed, Resolver
from gossamer.model.response import FetchProblem
from gossamer.policy.address import parse_networks


class Zone:
    """A name server in a dict: an endpoint that answers, and counts what it was asked."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = names
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def lookup(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        await self.gate.wait()
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[name]


async def failure_of(resolver: Resolver, host: str) -> ResolveFailed:
    with pytest.raises(ResolveFailed) as caught:
        await resolver.resolve(host)
    return caught.value


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.b.localhost", "sub.localhost."])
def test_localhost_is_loopback_without_asking_anyone(host: str) -> None:
    async def scenario() -> None:
        zone = Zone()
        assert await Resolver(allow_private=True, lookup=zone.lookup).resolve(host) == ("127.0.0.1", "::1")
        refused = await failure_of(Resolver(allow_private=False, lookup=zone.lookup), host)
        assert refused.problem is FetchProblem.PRIVATE_ADDRESS
        assert (
            "resolves to 127.0.0.1, a loopback address; --allow-private or --allow-network 127.0.0.1 allows it"
            in str(refused)
        )
        assert zone.asked == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "detail"),
    [
        (
            "127.0.0.1",
            "127.0.0.1 is a loopback address; --allow-private or --allow-network 127.0.0.1 allows it",
        ),
        ("[::1]", "::1 is a loopback address; --allow-private or --allow-network ::1 allows it"),
        (
            "0.0.0.0",
            "0.0.0.0 is an unspecified address; --allow-private or --allow-network 0.0.0.0 allows it",
        ),
        ("[::ffff:a9fe:a9fe]", "is a metadata address"),
    ],
)
def test_an_ip_literal_is_checked_and_never_looked_up(host: str, detail: str) -> None:
    async def scenario() -> None:
        zone = Zone()
        refused = await failure_of(Resolver(allow_private=False, lookup=zone.lookup), host)
        assert refused.problem is FetchProblem.PRIVATE_ADDRESS
        assert detail in str(refused)
        assert len(await Resolver(allow_private=True, lookup=zone.lookup).resolve(host)) == 1
        assert zone.asked == []

    asyncio.run(scenario())


def test_only_the_public_addresses_of_a_name_are_returned() -> None:
    async def scenario() -> None:
        zone = Zone(
            mixed=["10.0.0.1", "93.184.216.34", "::1", "2606:4700::1", "93.184.216.34"], inside=["10.0.0.1"]
        )
        resolver = Resolver(allow_private=False, lookup=zone.lookup)
        assert await resolver.resolve("mixed") == ("93.184.216.34", "2606:4700::1")
        refused = await failure_of(resolver, "inside")
        assert refused.problem is FetchProblem.PRIVATE_ADDRESS
        assert (
            str(refused)
            == "inside resolves to 10.0.0.1, a private address; --allow-private or --allow-network 10.0.0.1 allows it"
        )

    asyncio.run(scenario())


def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    async def scenario() -> None:
        refused = await failure_of(
            Resolver(allow_private=False, lookup=Zone(empty=[]).lookup), "no.such.name"
        )
        assert refused.problem is FetchProblem.DNS
        assert str(refused) == "no.such.name does not resolve: Name or service not known"
        assert "has no address" in str(
            await failure_of(Resolver(allow_private=False, lookup=Zone(empty=[]).lookup), "empty")
        )

    asyncio.run(scenario())


def test_the_systems_resolver_refuses_impossible_names_and_finds_numeric_tricks_out() -> None:
    async def scenario() -> None:
        resolver = Resolver(allow_private=False)
        assert (await failure_of(resolver, "a" * 300)).problem is FetchProblem.DNS
        # The C library reads these as 127.0.0.1; whatever it finds is checked like any other answer.
        for trick in ("0x7f.1", "2130706433", "127.1"):
            assert (await failure_of(resolver, trick)).problem is FetchProblem.PRIVATE_ADDRESS
        resolver.close()

    asyncio.run(scenario())


def test_answers_are_kept_for_their_time_and_failures_for_a_shorter_one() -> None:
    async def scenario() -> None:
        now = 1000.0
        zone = Zone(a=["93.184.216.34"])
        resolver = Resolver(
            allow_private=False, ttl_seconds=60, failure_ttl_seconds=5, lookup=zone.lookup, clock=lambda: now
        )
        for _ in range(2):
            await resolver.resolve("a")
            await failure_of(resolver, "b")
        assert zone.asked == ["a", "b"]
        now += 5
        await resolver.resolve("a")
        await failure_of(resolver, "b")
        assert zone.asked == ["a", "b", "b"]
        now += 60
        await resolver.resolve("a")
        assert zone.asked == ["a", "b", "b", "a"]

    asyncio.run(scenario())


def test_the_cache_keeps_a_bounded_number_of_names() -> None:
    async def scenario() -> None:
        zone = Zone(**{f"n{n}": ["93.184.216.34"] for n in range(10)})
        resolver = Resolver(allow_private=False, max_names=3, lookup=zone.lookup)
        for n in range(10):
            await resolver.resolve(f"n{n}")
        assert len(resolver._answers) == 3

    asyncio.run(scenario())


def test_a_name_asked_for_many_times_at_once_is_looked_up_once() -> None:
    async def scenario() -> None:
        zone = Zone(a=["93.184.216.34"])
        resolver = Resolver(allow_private=False, lookup=zone.lookup)
        assert len(set(await asyncio.gather(*(resolver.resolve("a") for _ in range(20))))) == 1
        assert zone.asked == ["a"]

    asyncio.run(scenario())


def test_when_the_first_to_ask_is_cancelled_the_others_still_get_an_answer() -> None:
    async def scenario() -> None:
        zone = Zone(a=["93.184.216.34"])
        zone.gate.clear()
        resolver = Resolver(allow_private=False, lookup=zone.lookup)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(resolver.resolve("a"))
            second = tasks.create_task(resolver.resolve("a"))
            while not zone.asked:
                await asyncio.sleep(0)
            first.cancel()
            zone.gate.set()
        assert first.cancelled()
        assert second.result() == ("93.184.216.34",)
        assert resolver._pending == {}

    asyncio.run(scenario())


def test_one_who_waits_may_be_cancelled_without_harm_to_the_others() -> None:
    async def scenario() -> None:
        zone = Zone(a=["93.184.216.34"])
        zone.gate.clear()
        resolver = Resolver(allow_private=False, lookup=zone.lookup)
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(resolver.resolve("a")) for _ in range(3)]
            for _ in range(3):
                await asyncio.sleep(0)
            waiting[1].cancel()
            await asyncio.sleep(0)
            zone.gate.set()
        assert [task.cancelled() for task in waiting] == [False, True, False]

    asyncio.run(scenario())


def test_no_more_lookups_run_at_once_than_allowed() -> None:
    async def scenario() -> None:
        zone = Zone(**{f"n{n}": ["93.184.216.34"] for n in range(10)})
        zone.gate.clear()
        resolver = Resolver(allow_private=False, max_lookups=2, lookup=zone.lookup)
        async with asyncio.TaskGroup() as tasks:
            for n in range(10):
                tasks.create_task(resolver.resolve(f"n{n}"))
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(zone.asked) == 2
            zone.gate.set()
        assert len(zone.asked) == 10

    asyncio.run(scenario())


def test_a_name_with_hundreds_of_addresses_yields_a_few() -> None:
    async def scenario() -> None:
        zone = Zone(many=[f"93.184.{n}.1" for n in range(250)])
        assert len(await Resolver(allow_private=False, lookup=zone.lookup).resolve("many")) == 8

    asyncio.run(scenario())


def test_an_allowed_network_lets_through_its_addresses_and_no_others() -> None:
    async def scenario() -> None:
        zone = Zone(
            mixed=["10.0.0.1", "192.168.0.1", "fd00::1", "93.184.216.34", "::ffff:10.0.0.2"],
            near=["10.0.0.255", "11.0.0.1", "10.0.1.0"],
            far=["192.168.0.1"],
        )
        networks = parse_networks(["10.0.0.0/24", "fd00::1"])
        resolver = Resolver(allow_private=False, allow_networks=networks, lookup=zone.lookup)
        assert await resolver.resolve("mixed") == ("10.0.0.1", "fd00::1", "93.184.216.34", "::ffff:10.0.0.2")
        assert await resolver.resolve("near") == ("10.0.0.255", "11.0.0.1")
        assert await resolver.resolve("[::ffff:a00:1]") == ("::ffff:a00:1",)
        refused = await failure_of(resolver, "far")
        assert str(refused).endswith("; --allow-private or --allow-network 192.168.0.1 allows it")
        assert (await failure_of(resolver, "localhost")).problem is FetchProblem.PRIVATE_ADDRESS

    asyncio.run(scenario())
