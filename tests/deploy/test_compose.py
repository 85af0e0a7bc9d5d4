"""The compose file: backends that lose nothing, workers that can be scaled and stopped, and no secret in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.config.load import load_settings

from .reading import (
    DEPLOY,
    REMOVED,
    Document,
    Rule,
    changed,
    read_env,
    read_yaml,
    seconds,
    tagged,
    understood,
)

TEXT = (DEPLOY / "compose.yaml").read_text("utf-8")
(COMPOSE,) = read_yaml(TEXT)
OURS = ("migrate", "worker")
REDIS = "redis://redis:6379/0"
#: Stands for what a user has put into .env.
FILLED = "filled"
REQUIRED = r"\$\{POSTGRES_PASSWORD:\?[^}]*deploy/\.env[^}]*\}"


def condition(compose: Document, service: str, needed: str) -> str:
    """Return what a service waits for in another; "" if it does not wait."""
    return str(compose["services"][service].get("depends_on", {}).get(needed, {}).get("condition", ""))


def filled_in(text: str) -> str:
    """Return a text as compose makes it, with every variable set."""
    return re.sub(r"\$\{[^}]+\}", FILLED, text)


def texts(document: Document) -> Iterator[str]:
    """Yield every text in a document."""
    match document:
        case dict():
            for value in document.values():
                yield from texts(value)
        case list():
            for value in document:
                yield from texts(value)
        case str():
            yield document


# -- rules -----------------------------------------------------------------------------------------------


def pinned_images(compose: Document) -> Iterator[str]:
    for name, service in compose["services"].items():
        image = re.sub(r"\$\{\w+:-(.+)\}", r"\1", service["image"])
        if not tagged(image):
            yield f"{name}: {image} is not pinned"


def a_redis_that_keeps_what_it_is_given(compose: Document) -> Iterator[str]:
    redis = compose["services"]["redis"]
    said = " ".join(redis["command"])
    if not redis["image"].startswith("redis:7"):
        yield f"not Redis 7: {redis['image']}"
    if "--appendonly yes" not in said:
        yield "no append-only file"
    if not re.search(r"--maxmemory \d+mb", said) or "--maxmemory-policy noeviction" not in said:
        yield "memory without a bound, or keys that may be thrown away"
    if "redis:/data" not in redis["volumes"]:
        yield "its file is lost with the container"
    if "PONG" not in redis["healthcheck"]["test"][-1]:
        yield "an error while loading would pass for health"


def a_postgres_that_keeps_what_it_is_given(compose: Document) -> Iterator[str]:
    postgres = compose["services"]["postgres"]
    version = re.match(r"postgres:(\d+)", postgres["image"])
    if version is None or not 15 <= int(version[1]) <= 17:
        yield f"not PostgreSQL 15 to 17, whose data lie in this volume: {postgres['image']}"
    if "postgres:/var/lib/postgresql/data" not in postgres["volumes"]:
        yield "its data are lost with the container"
    check = postgres["healthcheck"]["test"]
    if "pg_isready" not in check or "--host=127.0.0.1" not in check:
        yield "the server that only makes the database would pass for the real one"


def tables_before_workers(compose: Document) -> Iterator[str]:
    migrate = compose["services"]["migrate"]
    if migrate["command"] != ["db", "upgrade"] or migrate.get("restart") != "no":
        yield "migrate must upgrade once"
    if migrate["healthcheck"] != {"disable": True}:
        yield "migrate serves no health"
    for service, needed, wanted in (
        ("migrate", "postgres", "service_healthy"),
        ("worker", "migrate", "service_completed_successfully"),
        ("worker", "redis", "service_healthy"),
        ("worker", "postgres", "service_healthy"),
    ):
        if condition(compose, service, needed) != wanted:
            yield f"{service} does not wait until {needed} is {wanted}"


def workers_that_can_be_scaled(compose: Document) -> Iterator[str]:
    worker = compose["services"]["worker"]
    yield from (
        f"only one worker can have {key}" for key in ("ports", "container_name", "hostname") if key in worker
    )
    if any(":" in volume for volume in worker["volumes"]):
        yield "workers share a volume"
    served = understood(worker["command"], worker["environment"])
    if served["health_port"] != 9464:
        yield "its health is not served where the image looks for it"
    if served["health_host"] != "0.0.0.0":
        yield "its figures can be asked for by itself alone"


def time_to_drain(compose: Document) -> Iterator[str]:
    worker = compose["services"]["worker"]
    # As the worker itself understands it.
    grace = understood(worker["command"], worker["environment"])["grace_seconds"]
    if seconds(worker.get("stop_grace_period", "10s")) <= grace:
        yield "a worker is killed before it has drained"


def no_secrets(compose: Document) -> Iterator[str]:
    if not re.fullmatch(REQUIRED, compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]):
        yield "the password must come from .env, and its absence must say so"
    for text in texts(compose):
        password = re.search(r"://[^:/@]*:(.+)@", text)
        if password and not re.fullmatch(REQUIRED, password[1]):
            yield f"a password in {text}"


def nothing_more_than_needed(compose: Document) -> Iterator[str]:
    for name in OURS:
        service = compose["services"][name]
        if service.get("read_only") is not True or service.get("tmpfs") != ["/tmp"]:
            yield f"{name}: the root can be written to"
        if service.get("cap_drop") != ["ALL"] or "no-new-privileges:true" not in service.get(
            "security_opt", ()
        ):
            yield f"{name}: may do more than it needs"
        if "user" in service or service.get("privileged"):
            yield f"{name}: another user than the image's"


def backends_out_of_reach(compose: Document) -> Iterator[str]:
    if compose["networks"]["backend"].get("internal") is not True:
        yield "the network of the backends leads outside"
    for name in ("redis", "postgres"):
        if compose["services"][name]["networks"] != ["backend"] or "ports" in compose["services"][name]:
            yield f"{name} can be reached from outside"
    if compose["services"]["worker"]["networks"] != ["backend", "outside", "monitoring"]:
        yield "a worker needs its backends, the internet, and whoever asks for its figures"


def variables_that_are_explained(compose: Document) -> Iterator[str]:
    known = read_env(DEPLOY / ".env.example")
    for text in texts(compose):
        yield from (
            f"{name} is not in .env.example"
            for name in re.findall(r"(?<!\$)\$\{(\w+)", text)
            if name not in known
        )


def settings_that_exist(compose: Document) -> Iterator[str]:
    for name in OURS:
        service = compose["services"][name]
        given = {word: filled_in(value) for word, value in service["environment"].items()}
        try:
            load_settings({}, given, None)
            known = understood(service["command"], given)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a setting is the complaint
            yield f"{name}: {error}"
        else:
            if known.get("postgres_url") != f"postgresql://gossamer:{FILLED}@postgres:5432/gossamer":
                yield f"{name} does not know its database"
            if known.get("redis_url", REDIS) != REDIS:
                yield f"{name} does not know its Redis"


WORKER = ("services", "worker")
BROKEN: list[tuple[Rule, tuple[str | int, ...], Any]] = [
    (pinned_images, ("services", "redis", "image"), "redis"),
    (pinned_images, ("services", "postgres", "image"), "postgres:latest"),
    (pinned_images, (*WORKER, "image"), "${CRAWLER_IMAGE:-gossamer}"),
    (a_redis_that_keeps_what_it_is_given, ("services", "redis", "image"), "redis:6.2"),
    (a_redis_that_keeps_what_it_is_given, ("services", "redis", "command", 2), "no"),
    (a_redis_that_keeps_what_it_is_given, ("services", "redis", "command", 4), "0"),
    (a_redis_that_keeps_what_it_is_given, ("services", "redis", "command", 6), "allkeys-lru"),
    (a_redis_that_keeps_what_it_is_given, ("services", "redis", "volumes"), []),
    (
        a_redis_that_keeps_what_it_is_given,
        ("services", "redis", "healthcheck", "test"),
        ["CMD", "redis-cli", "ping"],
    ),
    (a_postgres_that_keeps_what_it_is_given, ("services", "postgres", "image"), "postgres:14"),
    (a_postgres_that_keeps_what_it_is_given, ("services", "postgres", "image"), "postgres:18"),
    (a_postgres_that_keeps_what_it_is_given, ("services", "postgres", "volumes"), []),
    (a_postgres_that_keeps_what_it_is_given, ("services", "postgres", "healthcheck", "test", 2), "-q"),
    (tables_before_workers, ("services", "migrate", "command"), ["db", "downgrade"]),
    (tables_before_workers, ("services", "migrate", "restart"), "always"),
    (tables_before_workers, ("services", "migrate", "healthcheck"), {"interval": "5s"}),
    (
        tables_before_workers,
        ("services", "migrate", "depends_on", "postgres", "condition"),
        "service_started",
    ),
    (tables_before_workers, (*WORKER, "depends_on", "migrate", "condition"), "service_started"),
    (tables_before_workers, (*WORKER, "depends_on", "redis"), REMOVED),
    (tables_before_workers, (*WORKER, "depends_on", "postgres"), REMOVED),
    (workers_that_can_be_scaled, (*WORKER, "ports"), ["9464:9464"]),
    (workers_that_can_be_scaled, (*WORKER, "container_name"), "worker"),
    (workers_that_can_be_scaled, (*WORKER, "volumes"), ["jobs:/jobs"]),
    (workers_that_can_be_scaled, (*WORKER, "command"), ["worker", "--health-port", "9000"]),
    (workers_that_can_be_scaled, (*WORKER, "environment", "GOSSAMER_HEALTH_HOST"), REMOVED),
    (time_to_drain, (*WORKER, "stop_grace_period"), "30s"),
    (time_to_drain, (*WORKER, "stop_grace_period"), REMOVED),
    (time_to_drain, (*WORKER, "environment", "GOSSAMER_GRACE_SECONDS"), "60"),
    (no_secrets, ("services", "postgres", "environment", "POSTGRES_PASSWORD"), "hunter2"),
    (
        no_secrets,
        ("services", "postgres", "environment", "POSTGRES_PASSWORD"),
        "${POSTGRES_PASSWORD:-gossamer}",
    ),
    (
        no_secrets,
        (*WORKER, "environment", "GOSSAMER_POSTGRES"),
        "postgresql://gossamer:hunter2@postgres/gossamer",
    ),
    (no_secrets, (*WORKER, "environment", "GOSSAMER_REDIS"), "redis://:hunter2@redis:6379/0"),
    (nothing_more_than_needed, (*WORKER, "read_only"), False),
    (nothing_more_than_needed, (*WORKER, "tmpfs"), REMOVED),
    (nothing_more_than_needed, (*WORKER, "cap_drop"), REMOVED),
    (nothing_more_than_needed, ("services", "migrate", "security_opt"), []),
    (nothing_more_than_needed, (*WORKER, "user"), "root"),
    (backends_out_of_reach, ("networks", "backend"), {}),
    (backends_out_of_reach, ("services", "redis", "ports"), ["6379:6379"]),
    (backends_out_of_reach, ("services", "postgres", "networks"), ["backend", "outside"]),
    (backends_out_of_reach, (*WORKER, "networks"), ["backend"]),
    (variables_that_are_explained, (*WORKER, "environment", "GOSSAMER_CONTACT"), "${MAIL}"),
    (settings_that_exist, (*WORKER, "environment", "GOSSAMER_GRACE"), "30"),
    (settings_that_exist, (*WORKER, "environment", "GOSSAMER_GRACE_SECONDS"), "half a minute"),
    (settings_that_exist, ("services", "migrate", "environment", "GOSSAMER_POSTGRES"), REMOVED),
    (settings_that_exist, (*WORKER, "environment", "GOSSAMER_REDIS"), REMOVED),
    (settings_that_exist, (*WORKER, "environment", "GOSSAMER_REDIS_URL"), "redis://redis:6379/0"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BROKEN))


@pytest.mark.parametrize("rule", RULES)
def test_the_compose_file_keeps_every_rule(rule: Rule) -> None:
    assert list(rule(COMPOSE)) == []


@pytest.mark.parametrize(("rule", "path", "value"), BROKEN)
def test_a_compose_file_that_breaks_a_rule_is_noticed(
    rule: Rule, path: tuple[str | int, ...], value: Any
) -> None:
    assert list(rule(changed(COMPOSE, path, value))) != []


def fits_the_specification(path: Path) -> bool:
    program = str(Path(sys.executable).parent / "check-jsonschema")
    command = [program, "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def test_the_compose_file_fits_the_compose_specification(tmp_path: Path) -> None:
    assert fits_the_specification(DEPLOY / "compose.yaml")
    broken = tmp_path / "compose.yaml"
    broken.write_text(TEXT.replace("stop_grace_period:", "stop_grace:"), "utf-8")
    assert not fits_the_specification(broken)


def test_no_secret_has_a_value_in_the_example_and_the_real_one_stays_out_of_the_repository() -> None:
    example = read_env(DEPLOY / ".env.example")
    assert (example["POSTGRES_PASSWORD"], example["GRAFANA_PASSWORD"]) == ("", "")
    assert "deploy/.env" in (DEPLOY.parent / ".gitignore").read_text("utf-8").splitlines()


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_redis_understands_how_it_is_started(tmp_path: Path) -> None:
    program, *options = COMPOSE["services"]["redis"]["command"]
    socket = tmp_path / "redis.sock"
    own = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path)]
    with subprocess.Popen([program, *options, *own], stdout=subprocess.DEVNULL) as server:
        try:
            asked = [["ping"], ["config", "get", "appendonly"], ["config", "get", "maxmemory*"]]
            said = [answer(socket, *words) for words in asked]
        finally:
            server.terminate()
    assert said[0] == "PONG"
    assert said[1].split() == ["appendonly", "yes"]
    assert {"noeviction", str(512 * 1024 * 1024)} <= set(said[2].split())


def answer(socket: Path, *words: str) -> str:
    """Ask a Redis, waiting until it is there."""
    command = ["redis-cli", "-s", str(socket), *words]
    for _ in range(200):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and done.stdout:
            return done.stdout.strip()
    raise AssertionError(done.stderr)
