"""Runs inside a network namespace of its own, where every address there is answers, and counts who was asked.

A route makes all of IPv4 and IPv6 local, so a connection to any address arrives here instead of failing: a crawler
that is led astray cannot go unnoticed. One HTTP server serves them all on port 80, and a name server answers on
127.0.0.53. Commands come as JSON lines on standard input, one answer each goes to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

NAME_SERVER = "127.0.0.53"
_A, _AAAA = 1, 28
_SECONDS = 120.0


def make_world() -> None:
    """Bring up loopback, make every address local, and have names resolved here."""
    for command in (
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
        file.write(f"nameserver {NAME_SERVER}\noptions timeout:20 attempts:1\n")
    subprocess.run(["mount", "--bind", file.name, "/etc/resolv.conf"], check=True, capture_output=True)
    Path(file.name).unlink()


class NameServer(asyncio.DatagramProtocol):
    """Answers A and AAAA by a zone: for each name a list of answers, given in turn; the last one stays."""

    def __init__(self) -> None:
        self.zone: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self._turns: dict[tuple[str, int], int] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.DatagramTransport", transport
        )  # by inheritance it is none before 3.12

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, kind, end = _question(data)
        self.asked.append(f"{name} {'A' if kind == _A else 'AAAA' if kind == _AAAA else kind}")
        answers = self.zone.get(name)
        turn = self._turns[name, kind] = self._turns.get((name, kind), -1) + 1
        found = answers[min(turn, len(answers) - 1)] if answers else []
        packed = [ip_address(text).packed for text in found]
        wanted = [address for address in packed if len(address) == {_A: 4, _AAAA: 16}.get(kind, 0)]
        flags = 0x8180 if answers else 0x8183
        reply = data[:2] + struct.pack(">HHHHH", flags, 1, len(wanted), 0, 0) + data[12:end]
        for address in wanted:
            reply += struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(address)) + address
        assert self._transport is not None
        self._transport.sendto(reply, addr)

    def reset(self, zone: dict[str, list[list[str]]]) -> None:
        """Forget everything but this zone."""
        self.zone, self.asked, self._turns = zone, [], {}


def _question(data: bytes) -> tuple[str, int, int]:
    position = 12
    labels = []
    while data[position]:
        labels.append(data[position + 1 : position + 1 + data[position]].decode("latin-1"))
        position += 1 + data[position]
    return ".".join(labels).lower(), int.from_bytes(data[position + 1 : position + 3], "big"), position + 5


class Web:
    """The HTTP server of all addresses: pages by host and path, and what was asked of whom."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.hits: list[str] = []
        self.connections: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note the address somebody connected to, and answer one request."""
        address, port = writer.get_extra_info("sockname")[:2]
        place = str(ip_address(address))
        self.connections.append(place if port == 80 else f"{place} port {port}")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            host = head.lower().partition("\r\nhost: ")[2].partition("\r\n")[0]
            self.hits.append(f"{method} {host}{target}" if method != "CONNECT" else f"CONNECT {target}")
            default = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(self.pages.get(f"{host}{target}", self.pages.get(target, default)).encode())
            await writer.drain()
        writer.close()


class Inside:
    """Carries out the commands of the test outside."""

    def __init__(self) -> None:
        self.web = Web()
        self.names = NameServer()

    async def open(self) -> None:
        """Listen everywhere on port 80, and on port 81 on loopback alone."""
        loop = asyncio.get_running_loop()
        await asyncio.start_server(self.web.serve, "0.0.0.0", 80, family=socket.AF_INET)
        await asyncio.start_server(self.web.serve, "::", 80, family=socket.AF_INET6)
        await asyncio.start_server(self.web.serve, "127.0.0.1", 81)
        await asyncio.start_server(self.web.serve, "::1", 81)
        await loop.create_datagram_endpoint(lambda: self.names, (NAME_SERVER, 53))

    async def carry_out(self, command: dict[str, Any]) -> dict[str, Any]:
        """Set the stage, run a program on it, and tell what it did to the network."""
        self.web.pages = command["pages"]
        self.web.hits, self.web.connections = [], []
        self.names.reset(command["zone"])
        process = await asyncio.create_subprocess_exec(
            *command["run"],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=command["cwd"],
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
        except TimeoutError:
            process.kill()
            out, err = await process.communicate()
        return {
            "code": process.returncode,
            "out": out.decode(),
            "err": err.decode("utf-8", "backslashreplace"),
            "connections": self.web.connections,
            "hits": self.web.hits,
            "asked": self.names.asked,
        }


async def main() -> None:
    inside = Inside()
    await inside.open()
    print(json.dumps({"ready": os.getpid()}), flush=True)  # noqa: T201 - the protocol
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await inside.carry_out(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    make_world()
    asyncio.run(main())
