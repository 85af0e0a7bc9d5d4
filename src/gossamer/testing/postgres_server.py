"""A real PostgreSQL for tests: in a temporary folder, on a free port of loopback, and gone when the tests are."""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from gossamer.frontier.postgres_schema import upgrade
from gossamer.testing.processes import free_port, leashed

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.05
_USER = "gossamer"


def programs() -> Path | None:
    """Return the folder with the programs of the newest PostgreSQL that is installed; None where there is none."""
    # Debian keeps them out of the PATH, several versions side by side.
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class PostgresServer:
    """One server and its data. It ends with the process that started it, even where that is killed.

    Without `durable` it never waits for the disk: what it says is committed survives its own crash, not the machine's.
    """

    def __init__(self, *, durable: bool = False) -> None:
        found = programs()
        if found is None:
            raise RuntimeError("PostgreSQL is not installed")
        self._bin = found
        self._durable = durable
        self.folder = Path(tempfile.mkdtemp(prefix="gossamer-postgres-"))
        self._account = _account()
        if self._account:
            os.chown(self.folder, *self._account)
        self.port = free_port()
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        options = ["--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(  # noqa: S603 - our own program
            [self._bin / "initdb", "--pgdata", self.folder / "data", *options],
            check=True,
            stdout=subprocess.DEVNULL,
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        """Return how to start a program of the server: it refuses to run as root."""
        if not self._account:
            return {"cwd": self.folder}
        user, group = self._account
        return {"cwd": self.folder, "user": user, "group": group, "extra_groups": []}

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        assert self._process is None, "it is running"
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if self._durable else "off",
            "synchronous_commit": "on",
            # What it learns of a table, and when, would be left to chance.
            "autovacuum": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
            "max_connections": 60,
            "shared_buffers": "128MB",
            "max_wal_size": "1GB",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                leashed(
                    [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *flags], signal.SIGQUIT
                ),
                stdout=log,
                stderr=log,
                **self._identity(),
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        command = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + _START_SECONDS
        while subprocess.run(command, check=False).returncode:  # noqa: S603 - our own program
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text("utf-8", "replace"))
            time.sleep(_POLL_SECONDS)

    @property
    def pid(self) -> int:
        """The process of the server, for tests that freeze it."""
        assert self._process is not None
        return self._process.pid

    def stop(self, *, immediate: bool = False) -> None:
        """Stop it; `immediate` as a crash does: nobody is told, and the next start recovers from the log."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait(_STOP_SECONDS)
        self._process = None

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def database(self, *, template: str = "") -> str:
        """Make a database, empty or like another one that nobody is connected to; returns its name."""
        name = f"test_{next(self._names)}"
        self._psql(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return name

    def drop(self, database: str) -> None:
        """Delete a database, whoever is connected to it."""
        self._psql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _psql(self, statement: str) -> None:
        command = [str(self._bin / "psql"), "-qX", "-v", "ON_ERROR_STOP=1", self.dsn(), "-c", statement]
        subprocess.run(command, check=True, cwd=self.folder)  # noqa: S603 - our own program


@cache
def shared_server() -> PostgresServer:
    """Return the server that all tests of this process share; it ends with them."""
    server = PostgresServer()
    atexit.register(server.remove)
    server.start()
    return server


def migrated_database(server: PostgresServer) -> str:
    """Make a database with the tables of a ledger; returns its name."""
    return server.database(template=_template(server))


@cache
def _template(server: PostgresServer) -> str:
    name = server.database()
    upgrade(server.dsn(name))
    return name


def _account() -> tuple[int, int] | None:
    """Return the user and group to run as where we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    raise RuntimeError("PostgreSQL does not run as root, and there is no user to run it as")
