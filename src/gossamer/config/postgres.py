"""How a ledger is shared through PostgreSQL: its bounds, each with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.config.settings import Section, option


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PostgresLimits(Section):
    """How a process uses the PostgreSQL that holds shared jobs."""

    connections: int = option(4, "connections a process holds at most", name="postgres_connections")
    statement_seconds: float = option(
        30.0,
        "a statement that takes longer is given up; commands that only ask wait for two minutes, or for this if it is"
        " longer",
        name="postgres_statement_seconds",
    )
    grace_seconds: float = option(
        5.0,
        "what the server has to give a statement up before the connection is cut",
        name="postgres_grace_seconds",
        advanced=True,
    )
    connect_seconds: float = option(
        10.0, "time to make a connection", name="postgres_connect_seconds", advanced=True
    )
    lock_seconds: float = option(
        5.0,
        "whoever waits longer for a lock ends the transactions of workers that have been silent for as long",
        name="postgres_lock_seconds",
        advanced=True,
    )
    #: How long a call waits for a server that went away before it fails. Each command has its own.
    patience_seconds: float = 60.0
