"""The profile `dashboard`: out of the way unless wanted, closed to others, and with panels that can be drawn."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from .reading import DEPLOY, REMOVED, Document, Rule, changed, read_yaml, seconds, tagged

FOLDER = DEPLOY / "dashboard"
PROFILE = ("prometheus", "grafana")
(COMPOSE,) = read_yaml((DEPLOY / "compose.yaml").read_text("utf-8"))
(SCRAPING,) = read_yaml((FOLDER / "prometheus.yml").read_text("utf-8"))
(SOURCES,) = read_yaml((FOLDER / "provisioning/datasources/prometheus.yaml").read_text("utf-8"))
(PROVIDERS,) = read_yaml((FOLDER / "provisioning/dashboards/gossamer.yaml").read_text("utf-8"))
DASHBOARD = json.loads((FOLDER / "gossamer.json").read_text("utf-8"))
#: All that belongs together, so that one rule can compare two of them.
ALL = {
    "compose": COMPOSE,
    "scraping": SCRAPING,
    "sources": SOURCES,
    "providers": PROVIDERS,
    "dashboard": DASHBOARD,
}
MOUNT = "./dashboard:/etc/gossamer:ro"
WIDTH = 24


# -- rules -----------------------------------------------------------------------------------------------


def out_of_a_plain_up(every: Document) -> Iterator[str]:
    services = every["compose"]["services"]
    for name, service in services.items():
        if (service.get("profiles") == ["dashboard"]) != (name in PROFILE):
            yield f"{name} is in profiles {service.get('profiles')}"
        if name not in PROFILE and set(service.get("depends_on", ())) & set(PROFILE):
            yield f"{name} cannot start without the dashboard"
    # Compose fills in the whole file before it looks at profiles.
    for name in PROFILE:
        if re.search(r"(?<!\$)\$\{\w+:?\?", json.dumps(services[name])):
            yield f"{name}: a plain `up` would ask for what only the dashboard needs"


def closed_to_others(every: Document) -> Iterator[str]:
    services, networks = every["compose"]["services"], every["compose"]["networks"]
    for name, service in services.items():
        for port in service.get("ports", ()):
            if name != "grafana" or not str(port).startswith("127.0.0.1:"):
                yield f"{name}: port {port} is open to others"
    if services["grafana"].get("ports") != ["127.0.0.1:3000:3000"]:
        yield "Grafana is not where it is said to be"
    if networks["monitoring"].get("internal") is not True:
        yield "whoever asks for figures reaches the internet"
    if services["prometheus"]["networks"] != ["monitoring"]:
        yield "Prometheus reaches more than the workers"
    if services["grafana"]["networks"] != ["monitoring", "screen"]:
        yield "Grafana reaches the backends, or its port leads nowhere"
    if networks["screen"].get("internal"):
        yield "a port cannot be opened on an internal network"
    if [name for name, service in services.items() if "screen" in service["networks"]] != ["grafana"]:
        yield "others are on the network of the screen"


def sealed(every: Document) -> Iterator[str]:
    for name in PROFILE:
        service = every["compose"]["services"][name]
        if service.get("read_only") is not True or service.get("tmpfs") != ["/tmp"]:
            yield f"{name}: the root can be written to"
        if service.get("cap_drop") != ["ALL"] or service.get("security_opt") != ["no-new-privileges:true"]:
            yield f"{name}: may do more than it needs"
        if MOUNT not in service["volumes"] or any(volume.startswith("/") for volume in service["volumes"]):
            yield f"{name}: does not see its files, or may change them"
        if not tagged(service["image"]) or not re.search(r":v?\d+\.\d+\.\d+$", service["image"]):
            yield f"{name}: {service['image']} is not pinned"


def says_nothing_to_others(every: Document) -> Iterator[str]:
    given = every["compose"]["services"]["grafana"]["environment"]
    for name, wanted in {
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_USERS_ALLOW_SIGN_UP": "false",
    }.items():
        if given.get(name) != wanted:
            yield f"{name} is not {wanted}"
    if any(name.startswith("GF_AUTH_ANONYMOUS") for name in given):
        yield "whoever comes is let in"
    if given.get("GF_SECURITY_ADMIN_PASSWORD") != "${GRAFANA_PASSWORD:-}":
        yield "the password must come from .env"


def bounded(every: Document) -> Iterator[str]:
    service = every["compose"]["services"]["prometheus"]
    said = " ".join(service["command"])
    if "retention.time=" not in said or "retention.size=" not in said:
        yield "Prometheus fills the disk"
    if "--storage.tsdb.path=/prometheus" not in said or "prometheus:/prometheus" not in service["volumes"]:
        yield "its data are lost with the container"
    if "grafana:/var/lib/grafana" not in every["compose"]["services"]["grafana"]["volumes"]:
        yield "the password of Grafana is lost with the container"
    if not set(PROFILE) <= set(every["compose"]["volumes"]):
        yield "a volume that nobody declared"


def every_worker_is_asked(every: Document) -> Iterator[str]:
    (job,) = every["scraping"]["scrape_configs"]
    found = [
        {key: place.get(key) for key in ("names", "type", "port")} for place in job.get("dns_sd_configs", ())
    ]
    services = every["compose"]["services"]
    port = int(services["worker"]["command"][-1])
    if found != [{"names": ["worker"], "type": "A", "port": port}] or "static_configs" in job:
        yield "a worker more or less would not be noticed"
    if job.get("honor_labels") is not True:
        yield "the name of a crawl is called otherwise than docs/metrics.md says"
    if not set(services["prometheus"]["networks"]) & set(services["worker"]["networks"]):
        yield "Prometheus does not reach the workers"
    if "--config.file=/etc/gossamer/prometheus.yml" not in services["prometheus"]["command"]:
        yield "Prometheus reads another file"
    yield from (
        f"there is no {name}" for name in every["scraping"]["rule_files"] if not (FOLDER / name).is_file()
    )


def provisioned(every: Document) -> Iterator[str]:
    (source,) = every["sources"]["datasources"]
    if every["sources"]["apiVersion"] != 1 or every["providers"]["apiVersion"] != 1:
        yield "Grafana reads version 1"
    if (source["type"], source["access"], source["url"]) != ("prometheus", "proxy", "http://prometheus:9090"):
        yield "Grafana asks elsewhere"
    if source.get("isDefault") is not True or source.get("editable") is not False:
        yield "the source is not the one that panels use, or can be changed"
    every_seconds = seconds(every["scraping"]["global"]["scrape_interval"])
    if seconds(source["jsonData"].get("timeInterval", "0s")) != every_seconds:
        yield "Grafana would compute rates over too short a time"
    (provider,) = every["providers"]["providers"]
    if provider["type"] != "file" or provider["options"] != {"path": MOUNT.split(":")[1]}:
        yield "the dashboard is not where Grafana looks"
    given = every["compose"]["services"]["grafana"]["environment"]
    if given["GF_PATHS_PROVISIONING"] != f"{MOUNT.split(':')[1]}/provisioning":
        yield "Grafana does not read its provisioning"


def panels_that_can_be_drawn(every: Document) -> Iterator[str]:
    dashboard = every["dashboard"]
    if not dashboard.get("uid") or not dashboard.get("title") or dashboard.get("schemaVersion", 0) < 36:
        yield "the dashboard has no name of its own, or a shape that Grafana must guess"
    if "id" in dashboard:
        yield "the id is Grafana's to give"
    ids = [panel.get("id") for panel in dashboard["panels"]]
    if None in ids or len(set(ids)) != len(ids):
        yield f"ids: {ids}"
    for panel in dashboard["panels"]:
        if panel["type"] not in {"stat", "timeseries"} or not panel["title"] or not panel["description"]:
            yield f"panel {panel['id']} does not say what it shows"
        names = [target["refId"] for target in panel["targets"]]
        if not names or len(set(names)) != len(names) or not all(each["expr"] for each in panel["targets"]):
            yield f"panel {panel['id']} asks nothing, or two things under one name"


def one_source(every: Document) -> Iterator[str]:
    (variable,) = every["dashboard"]["templating"]["list"]
    (source,) = every["sources"]["datasources"]
    if (variable["type"], variable["query"]) != ("datasource", source["type"]):
        yield "the source cannot be chosen"
    wanted = {"type": source["type"], "uid": f"${{{variable['name']}}}"}
    for panel in every["dashboard"]["panels"]:
        used = [panel.get("datasource"), *(target.get("datasource") for target in panel["targets"])]
        yield from (f"panel {panel['id']} asks {each}" for each in used if each != wanted)


def side_by_side(every: Document) -> Iterator[str]:
    places = [(panel["id"], panel["gridPos"]) for panel in every["dashboard"]["panels"]]
    for number, place in places:
        if place["x"] < 0 or place["y"] < 0 or place["w"] < 1 or place["h"] < 1:
            yield f"panel {number} has no place"
        if place["x"] + place["w"] > WIDTH:
            yield f"panel {number} is off the screen"
    for (one, a), (other, b) in itertools.combinations(places, 2):
        if (
            a["x"] < b["x"] + b["w"]
            and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"]
            and b["y"] < a["y"] + a["h"]
        ):
            yield f"panels {one} and {other} overlap"


SERVICES = ("compose", "services")
GRAFANA = (*SERVICES, "grafana")
ASKING = (*SERVICES, "prometheus")
SCRAPE = ("scraping", "scrape_configs", 0)
SOURCE = ("sources", "datasources", 0)
PANELS = ("dashboard", "panels")
BROKEN: list[tuple[Rule, tuple[str | int, ...], Any]] = [
    (out_of_a_plain_up, (*GRAFANA, "profiles"), REMOVED),
    (out_of_a_plain_up, (*ASKING, "profiles"), []),
    (out_of_a_plain_up, (*SERVICES, "worker", "profiles"), ["dashboard"]),
    (out_of_a_plain_up, (*SERVICES, "worker", "depends_on", "prometheus"), {"condition": "service_started"}),
    (out_of_a_plain_up, (*GRAFANA, "environment", "GF_SECURITY_ADMIN_PASSWORD"), "${GRAFANA_PASSWORD:?set}"),
    (closed_to_others, (*GRAFANA, "ports"), ["3000:3000"]),
    (closed_to_others, (*GRAFANA, "ports"), REMOVED),
    (closed_to_others, (*ASKING, "ports"), ["127.0.0.1:9090:9090"]),
    (closed_to_others, ("compose", "networks", "monitoring"), {}),
    (closed_to_others, ("compose", "networks", "screen"), {"internal": True}),
    (closed_to_others, (*ASKING, "networks"), ["monitoring", "backend"]),
    (closed_to_others, (*GRAFANA, "networks"), ["monitoring", "screen", "backend"]),
    (closed_to_others, (*SERVICES, "worker", "networks"), ["monitoring", "screen"]),
    (sealed, (*GRAFANA, "read_only"), False),
    (sealed, (*ASKING, "tmpfs"), REMOVED),
    (sealed, (*ASKING, "cap_drop"), REMOVED),
    (sealed, (*GRAFANA, "security_opt"), []),
    (sealed, (*GRAFANA, "volumes", 0), "./dashboard:/etc/gossamer"),
    (sealed, (*ASKING, "volumes", 1), "/var/run/docker.sock:/var/run/docker.sock"),
    (sealed, (*ASKING, "image"), "prom/prometheus:latest"),
    (sealed, (*GRAFANA, "image"), "grafana/grafana:11"),
    (says_nothing_to_others, (*GRAFANA, "environment", "GF_ANALYTICS_REPORTING_ENABLED"), "true"),
    (says_nothing_to_others, (*GRAFANA, "environment", "GF_PLUGINS_PREINSTALL_DISABLED"), REMOVED),
    (says_nothing_to_others, (*GRAFANA, "environment", "GF_AUTH_ANONYMOUS_ENABLED"), "true"),
    (says_nothing_to_others, (*GRAFANA, "environment", "GF_SECURITY_ADMIN_PASSWORD"), "admin"),
    (bounded, (*ASKING, "command", 3), REMOVED),
    (bounded, ("compose", "volumes", "grafana"), REMOVED),
    (bounded, (*ASKING, "volumes", 1), REMOVED),
    (bounded, (*GRAFANA, "volumes", 1), REMOVED),
    (every_worker_is_asked, (*SCRAPE, "dns_sd_configs", 0, "type"), "SRV"),
    (every_worker_is_asked, (*SCRAPE, "dns_sd_configs", 0, "port"), 9090),
    (every_worker_is_asked, (*SCRAPE, "dns_sd_configs", 0, "names"), ["workers"]),
    (every_worker_is_asked, (*SCRAPE, "static_configs"), [{"targets": ["worker:9464"]}]),
    (every_worker_is_asked, (*SCRAPE, "honor_labels"), REMOVED),
    (every_worker_is_asked, (*ASKING, "networks"), ["screen"]),
    (every_worker_is_asked, (*ASKING, "command", 0), "--config.file=/etc/prometheus/prometheus.yml"),
    (every_worker_is_asked, ("scraping", "rule_files"), ["rules.yml"]),
    (provisioned, (*SOURCE, "url"), "http://127.0.0.1:9090"),
    (provisioned, (*SOURCE, "isDefault"), False),
    (provisioned, (*SOURCE, "jsonData", "timeInterval"), "5s"),
    (provisioned, ("providers", "providers", 0, "options", "path"), "/var/lib/grafana/dashboards"),
    (provisioned, (*GRAFANA, "environment", "GF_PATHS_PROVISIONING"), "/etc/grafana/provisioning"),
    (panels_that_can_be_drawn, ("dashboard", "uid"), ""),
    (panels_that_can_be_drawn, ("dashboard", "id"), 7),
    (panels_that_can_be_drawn, (*PANELS, 1, "id"), 1),
    (panels_that_can_be_drawn, (*PANELS, 0, "type"), "graph"),
    (panels_that_can_be_drawn, (*PANELS, 0, "description"), ""),
    (panels_that_can_be_drawn, (*PANELS, 0, "targets"), []),
    (panels_that_can_be_drawn, (*PANELS, 14, "targets", 1, "refId"), "A"),
    (one_source, (*PANELS, 0, "datasource", "uid"), "prometheus"),
    (one_source, (*PANELS, 3, "targets", 0, "datasource"), REMOVED),
    (one_source, ("dashboard", "templating", "list", 0, "type"), "query"),
    (side_by_side, (*PANELS, 6, "gridPos", "w"), 13),
    (side_by_side, (*PANELS, 7, "gridPos", "y"), 3),
    (side_by_side, (*PANELS, 7, "gridPos", "x"), 13),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BROKEN))


@pytest.mark.parametrize("rule", RULES)
def test_the_dashboard_keeps_every_rule(rule: Rule) -> None:
    assert list(rule(ALL)) == []


@pytest.mark.parametrize(("rule", "path", "value"), BROKEN)
def test_a_dashboard_that_breaks_a_rule_is_noticed(
    rule: Rule, path: tuple[str | int, ...], value: Any
) -> None:
    assert list(rule(changed(ALL, path, value))) != []


@pytest.mark.parametrize("password", ["", "hunter2"])
def test_grafana_does_not_start_without_a_password_and_says_where_to_set_it(password: str) -> None:
    shell, option, script = COMPOSE["services"]["grafana"]["entrypoint"]
    assert script.endswith(" && exec /run.sh")
    # Compose makes one dollar of two.
    script = script.replace("$$", "$").replace("/run.sh", "true")
    environment = {"PATH": os.environ["PATH"], "GF_SECURITY_ADMIN_PASSWORD": password}
    said = subprocess.run(
        [shell, option, script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (said.returncode == 0) == bool(password)
    assert ("GRAFANA_PASSWORD in deploy/.env" in said.stderr) == (not password)


def test_only_one_dashboard_is_where_grafana_looks() -> None:
    assert [path.name for path in FOLDER.rglob("*.json")] == ["gossamer.json"]


@pytest.mark.parametrize("path", [FOLDER, *FOLDER.rglob("*")], ids=lambda path: path.name)
def test_users_of_other_images_can_read_every_file(path: Any) -> None:
    assert path.stat().st_mode & 0o004
