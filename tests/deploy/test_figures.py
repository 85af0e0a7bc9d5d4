"""What the dashboard, the alerts and the autoscalers ask for, held against what a real worker serves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.observe.metrics import METRICS
from gossamer.testing.redis_server import free_port

from .crawl import Figures, Worker, can_crawl, crawl, wait_until
from .kubernetes_rules import WHOLE_QUEUE
from .promql import Query, read_query
from .reading import DEPLOY, ROOT, read_yaml

FOLDER = DEPLOY / "dashboard"
DASHBOARD = json.loads((FOLDER / "gossamer.json").read_text("utf-8"))
(ALERTS,) = read_yaml((FOLDER / "alerts.yml").read_text("utf-8"))
(SCRAPING,) = read_yaml((FOLDER / "prometheus.yml").read_text("utf-8"))
TARGETS = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
RULES = [
    pytest.param(rule["expr"], "", id=rule["alert"]) for group in ALERTS["groups"] for rule in group["rules"]
]
SCALERS = [pytest.param(WHOLE_QUEUE, "", id="autoscaler")]
#: Labels that Prometheus gives to whatever it asks; ours of the name `job` is the other one, unless it is honored.
OF_TARGETS = {"instance", "job", "exported_job"}
#: What Prometheus itself knows.
ITS_OWN: Figures = {"ALERTS": {"alertname": {"Gossamer.+"}, "alertstate": {"firing"}}}

needs_servers = pytest.mark.skipif(not can_crawl(), reason="needs PostgreSQL and redis-server")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """All that a worker served while it crawled."""
    served: Figures = {}

    def complete() -> bool:
        worker.add_figures(served)
        return "gossamer_queue_depth" in served and "gossamer_outcomes_total" in served

    with crawl(tmp_path_factory.mktemp("crawl")) as (worker,):
        wait_until(complete, "a worker reports a queue and outcomes")
    return served


def wrong(query: Query, legend: str, served: Figures) -> Iterator[str]:
    """Yield what a query asks for that nobody serves."""
    for metric in query.metrics - served.keys():
        yield f"nobody serves {metric}"
        return
    known = OF_TARGETS.union(*(served[metric] for metric in query.metrics))
    yield from (f"no label {label}" for label in query.labels - known)
    for metric, label, value in query.values:
        if value not in served[metric].get(label, ()):
            yield f"{label} of {metric} is never {value}"
    named = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
    yield from (f"the legend names {label}" for label in named - query.labels - query.made)


@needs_servers
@pytest.mark.parametrize(("expression", "legend"), [*TARGETS, *RULES, *SCALERS])
def test_whatever_is_asked_for_is_served_by_a_worker(expression: str, legend: str, figures: Figures) -> None:
    assert list(wrong(read_query(expression), legend, figures | ITS_OWN)) == []


@needs_servers
@pytest.mark.parametrize(
    ("expression", "legend"),
    [
        ("sum(rate(gossamer_pages_total[5m]))", ""),
        ("sum by (status) (rate(gossamer_fetches_total[5m]))", ""),
        ("sum by (state) (rate(gossamer_fetches_total[5m]))", ""),
        ('sum(rate(gossamer_fetches_total{status_class="6xx"}[5m]))', ""),
        ('sum(rate(gossamer_fetches_total{status_class=~"4xx|5XX"}[5m]))', ""),
        ("sum by (instance) (rate(gossamer_records_total[5m]))", "{{pod}}"),
        ("histogram_quantile(0.5, sum by (le) (rate(gossamer_commit_seconds[5m])))", ""),
    ],
)
def test_what_nobody_serves_is_noticed(expression: str, legend: str, figures: Figures) -> None:
    assert list(wrong(read_query(expression), legend, figures | ITS_OWN)) != []


@pytest.mark.parametrize(
    "expression", ["rate(gossamer_records_total[5 minutes])", "topk(3, up) @ end()", "up{instance}"]
)
def test_an_expression_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"not known|no range"):
        read_query(expression)


def test_every_metric_of_a_worker_is_on_the_dashboard() -> None:
    asked = {metric for case in TARGETS for metric in read_query(str(case.values[0])).metrics}
    served = {f"{name}_bucket" if metric.kind == "histogram" else name for name, metric in METRICS.items()}
    assert served - asked == set()


def test_what_is_written_down_for_the_adapter_is_what_keda_asks() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    (rules,) = [
        block for block in re.findall(r"```yaml\n(.+?)```", text, re.DOTALL) if "externalRules" in block
    ]
    ((rule,),) = [document["externalRules"] for document in read_yaml(rules)]
    assert rule["metricsQuery"] == WHOLE_QUEUE
    assert rule["name"] == {"as": "gossamer_queue_depth"}
    assert rule["seriesQuery"] in WHOLE_QUEUE


# -- a real Prometheus -----------------------------------------------------------------------------------

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="needs prometheus"
)


@needs_prometheus
def test_promtool_takes_the_configuration_and_the_alerts() -> None:
    check = ["promtool", "check", "config", str(FOLDER / "prometheus.yml")]
    said = subprocess.run(check, capture_output=True, text=True, check=False, timeout=30)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{len(RULES)} rules found" in said.stdout


@needs_prometheus
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    test = ["promtool", "test", "rules", "alerts_test.yml"]
    said = subprocess.run(
        test, cwd=Path(__file__).parent, capture_output=True, text=True, check=False, timeout=30
    )
    assert said.returncode == 0, said.stdout + said.stderr


class Prometheus:
    """A real server that asks workers on loopback every second."""

    def __init__(self, folder: Path, workers: list[Worker]) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        (job,) = SCRAPING["scrape_configs"]
        job = {key: value for key, value in job.items() if key != "dns_sd_configs"}
        job["static_configs"] = [{"targets": [f"127.0.0.1:{worker.port}" for worker in workers]}]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FOLDER / "alerts.yml")],
            "scrape_configs": [job],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(settings), "utf-8")
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def is_ready(self) -> bool:
        """Say whether it answers questions yet."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. Raises at a question it refuses."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                said = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
        assert (said["status"], said.get("warnings")) == ("success", None)
        return said["data"]

    def value(self, expression: str) -> list[Any]:
        """Return the vector that an expression gives now."""
        return list(self.ask("query", query=expression.replace("$__rate_interval", "10s"))["result"])

    def alerts(self) -> set[tuple[str, str, str]]:
        """Return name, health and state of each alert."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        return {(rule["name"], rule["health"], rule["state"]) for rule in rules}


@needs_servers
@needs_prometheus
@pytest.mark.soak
def test_every_panel_and_alert_is_answered_by_a_real_prometheus_that_watches_a_crawl(tmp_path: Path) -> None:
    with crawl(tmp_path, workers=2) as workers:
        prometheus = Prometheus(tmp_path, workers)
        try:
            wait_until(prometheus.is_ready, "Prometheus answers")
            wait_until(
                lambda: len(prometheus.value("rate(gossamer_records_total[10s]) > 0")) == 2,
                "both workers bring pages",
            )
            answers = {str(case.id): prometheus.value(str(case.values[0])) for case in TARGETS}
            scaler = prometheus.value(WHOLE_QUEUE)
            labels = {frozenset(each["metric"]) for each in prometheus.value("gossamer_queue_depth")}
            quiet = {(str(case.id), "ok", "inactive") for case in RULES}
            wait_until(lambda: prometheus.alerts() == quiet, "every alert was looked at, and none holds")
        finally:
            prometheus.end()
    assert [name for name, vector in answers.items() if not vector] == []
    assert float(scaler[0]["value"][1]) > 0
    assert labels == {frozenset({"__name__", "job", "instance"})}
