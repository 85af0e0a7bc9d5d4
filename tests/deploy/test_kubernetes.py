"""The manifests: valid for old and new clusters, without rights, without a way inside, and scaled by one hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate.utils import ValidationError, validate

from gossamer import __version__

from . import kubernetes_rules as rules
from .dockerfile import stages_of
from .kubernetes_rules import MIGRATE, NETWORK, SCALED, SERVICE, WORKER, Manifests
from .reading import BACKENDS, DEPLOY, REMOVED, Rule, changed, read_env, read_yaml

FOLDER = DEPLOY / "kubernetes"
BASE = FOLDER / "base"
KEDA = FOLDER / "overlays" / "keda"
VERSIONS = ("1.30", "1.37")


def by_name(texts: list[str]) -> Manifests:
    documents = [document for text in texts for document in read_yaml(text)]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in documents}


def kustomization(folder: Path) -> Any:
    (document,) = read_yaml((folder / "kustomization.yaml").read_text("utf-8"))
    return document


def manifests() -> Manifests:
    """Return every manifest that is applied, as it is written, with the settings as a manifest of their own."""
    files = [BASE / name for name in kustomization(BASE)["resources"]]
    files.append(KEDA / "scaledobject.yaml")
    found = by_name([file.read_text("utf-8") for file in files])
    found["ConfigMap/gossamer-settings"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gossamer-settings"},
        "data": read_env(BASE / "settings.env"),
    }
    return found


ALL = manifests()
SECRET = by_name([(FOLDER / "secret.example.yaml").read_text("utf-8")])
POD = (WORKER, "spec", "template", "spec")
BOX = (*POD, "containers", 0)
JOB = (MIGRATE, "spec", "template", "spec")
OUT = (NETWORK, "spec", "egress")
V4 = (*OUT, 3, "to", 0, "ipBlock")
V6 = (*OUT, 3, "to", 1, "ipBlock")

BROKEN: list[tuple[Rule, tuple[str | int, ...], Any]] = [
    (rules.namespace_neutral, (SERVICE, "metadata", "namespace"), "crawl"),
    (rules.without_rights, (*POD, "securityContext", "runAsNonRoot"), REMOVED),
    (rules.without_rights, (*POD, "securityContext", "runAsUser"), 0),
    (rules.without_rights, (*JOB, "securityContext", "seccompProfile"), REMOVED),
    (rules.without_rights, (*BOX, "securityContext", "allowPrivilegeEscalation"), True),
    (rules.without_rights, (*BOX, "securityContext", "capabilities"), {"drop": ["NET_RAW"]}),
    (rules.without_rights, (*BOX, "securityContext", "readOnlyRootFilesystem"), False),
    (rules.without_rights, (*POD, "hostNetwork"), True),
    (rules.without_rights, (*POD, "automountServiceAccountToken"), REMOVED),
    (rules.bounded_places_to_write, (*POD, "volumes", 0, "emptyDir"), {}),
    (rules.bounded_places_to_write, (*BOX, "volumeMounts", 1), REMOVED),
    (rules.no_variables_but_ours, (*POD, "enableServiceLinks"), REMOVED),
    (rules.settings_that_exist, (rules.SETTINGS, "data", "GOSSAMER_GRACE"), "30"),
    (rules.settings_that_exist, (rules.SETTINGS, "data", "GOSSAMER_REDIS"), "redis://:hunter2@redis"),
    (rules.settings_that_exist, (*BOX, "envFrom", 0, "configMapRef", "name"), "settings"),
    (rules.settings_that_exist, (*BOX, "envFrom", 1), REMOVED),
    (rules.probes, (*BOX, "startupProbe"), REMOVED),
    (rules.probes, (*BOX, "livenessProbe", "httpGet", "path"), "/readyz"),
    (rules.probes, (*BOX, "readinessProbe", "httpGet", "path"), "/healthz"),
    (rules.probes, (*BOX, "ports", 0, "containerPort"), 9000),
    (rules.probes, (*BOX, "args"), ["worker"]),
    (rules.probes, (rules.SETTINGS, "data", "GOSSAMER_HEALTH_HOST"), REMOVED),
    (rules.time_to_drain, (*POD, "terminationGracePeriodSeconds"), REMOVED),
    (rules.time_to_drain, (rules.SETTINGS, "data", "GOSSAMER_GRACE_SECONDS"), "60"),
    (rules.time_to_drain, (*BOX, "lifecycle"), {"preStop": {"sleep": {"seconds": 20}}}),
    (rules.time_to_drain, (*BOX, "lifecycle"), REMOVED),
    (rules.resources, (*BOX, "resources", "limits"), {}),
    (rules.resources, (*JOB, "containers", 0, "resources", "requests", "cpu"), REMOVED),
    (rules.spread_over_nodes, (*POD, "topologySpreadConstraints"), REMOVED),
    (rules.spread_over_nodes, (*POD, "topologySpreadConstraints", 0, "whenUnsatisfiable"), "DoNotSchedule"),
    (rules.spread_over_nodes, (*POD, "topologySpreadConstraints", 1, "labelSelector", "matchLabels"), {}),
    (
        rules.selectors_that_find_the_workers,
        (SERVICE, "spec", "selector", "app.kubernetes.io/component"),
        "w",
    ),
    (rules.selectors_that_find_the_workers, (rules.BUDGET, "spec", "selector", "matchLabels"), {}),
    (rules.a_budget_that_lets_nodes_be_emptied, (rules.BUDGET, "spec", "maxUnavailable"), 0),
    (rules.a_budget_that_lets_nodes_be_emptied, (rules.BUDGET, "spec", "minAvailable"), 1),
    (rules.metrics_of_each_worker, (SERVICE, "spec", "clusterIP"), REMOVED),
    (rules.metrics_of_each_worker, (SERVICE, "metadata", "annotations", "prometheus.io/port"), "80"),
    (rules.scaled_by_the_queue, (WORKER, "spec", "replicas"), 3),
    (rules.scaled_by_the_queue, (rules.SCALER, "spec", "minReplicas"), 0),
    (rules.scaled_by_the_queue, (rules.SCALER, "spec", "scaleTargetRef", "name"), "worker"),
    (rules.scaled_by_the_queue, (rules.SCALER, "spec", "metrics", 0, "external", "metric", "name"), "cpu"),
    (rules.scaled_by_the_queue, (rules.SCALER, "spec", "metrics", 0, "external", "target", "type"), "Value"),
    (rules.scaled_by_the_queue, (SCALED, "spec", "minReplicaCount"), 0),
    (rules.scaled_by_the_queue, (SCALED, "spec", "scaleTargetRef", "name"), "worker"),
    (rules.scaled_by_the_queue, (SCALED, "spec", "triggers", 0, "type"), "cpu"),
    (
        rules.scaled_by_the_queue,
        (SCALED, "spec", "triggers", 0, "metadata", "query"),
        "sum(gossamer_queue_depth)",
    ),
    (
        rules.scaled_by_the_queue,
        (SCALED, "spec", "triggers", 0, "metadata", "query"),
        rules.WHOLE_QUEUE.partition(" or ")[0],
    ),
    (rules.scaled_by_the_queue, (SCALED, "spec", "triggers", 0, "metadata", "threshold"), 1000),
    (rules.scaled_by_the_queue, (SCALED, "spec", "triggers", 0, "metadata", "ignoreNullValues"), "true"),
    (rules.no_way_inside, (NETWORK, "spec", "policyTypes"), ["Ingress"]),
    (rules.no_way_inside, (NETWORK, "spec", "podSelector", "matchLabels"), {"app": "gossamer"}),
    *[(rules.no_way_inside, (*V4, "except", place), REMOVED) for place in range(12)],
    (rules.no_way_inside, (*V4, "except", 0), "10.0.0.0/7"),
    (rules.no_way_inside, (*V4, "except", 0), "fd00::/8"),
    (rules.no_way_inside, (*V6, "except", 0), "::ffff:0:0/96"),
    (rules.no_way_inside, (*OUT, 3, "ports"), REMOVED),
    (rules.a_way_to_names_and_backends, (*OUT, 0, "ports", 1), REMOVED),
    (rules.a_way_to_names_and_backends, (*OUT, 1, "to", 0, "podSelector"), {}),
    (rules.a_way_to_names_and_backends, (*OUT, 2), REMOVED),
    (rules.asked_by_prometheus_alone, (NETWORK, "spec", "ingress", 0, "from"), REMOVED),
    (rules.asked_by_prometheus_alone, (NETWORK, "spec", "ingress", 0, "ports"), REMOVED),
    (rules.tables_first, (*JOB, "containers", 0, "args"), ["worker"]),
    (rules.tables_first, (*JOB, "containers", 0, "envFrom"), []),
    (rules.tables_first, (*JOB, "restartPolicy"), "OnFailure"),
    (rules.tables_first, (MIGRATE, "spec", "activeDeadlineSeconds"), REMOVED),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BROKEN))


@pytest.mark.parametrize("rule", RULES)
def test_the_manifests_keep_every_rule(rule: Rule) -> None:
    assert list(rule(ALL)) == []


@pytest.mark.parametrize(("rule", "path", "value"), BROKEN)
def test_a_manifest_that_breaks_a_rule_is_noticed(
    rule: Rule, path: tuple[str | int, ...], value: Any
) -> None:
    assert list(rule(changed(ALL, path, value))) != []


# -- schemas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted({*ALL, *SECRET} - {SCALED}))
def test_every_manifest_fits_the_schema_of_kubernetes_and_a_mistyped_key_does_not(
    name: str, version: str
) -> None:
    document = (ALL | SECRET)[name]
    validate(document, version, strict=True)
    with pytest.raises(ValidationError):
        validate(changed(document, ("metadata", "label"), {}), version, strict=True)


def test_a_value_of_the_wrong_kind_does_not_fit_the_schema() -> None:
    with pytest.raises(ValidationError):
        validate(changed(ALL, (*BOX, "ports", 0, "containerPort"), "http")[WORKER], VERSIONS[0], strict=True)


# -- kustomize -------------------------------------------------------------------------------------------


def test_the_base_lists_every_file_beside_it() -> None:
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization(BASE)["resources"]) == files
    assert kustomization(BASE)["configMapGenerator"] == [
        {"name": "gossamer-settings", "envs": ["settings.env"]}
    ]


def test_the_image_has_the_version_of_the_package_and_the_user_of_the_image() -> None:
    (image,) = kustomization(BASE)["images"]
    assert (image["name"], image["newTag"]) == ("gossamer", __version__)
    runtime = stages_of((DEPLOY / "Dockerfile").read_text("utf-8"))[-1]
    for name, pod in rules.pods(ALL):
        context = pod["securityContext"]
        assert runtime.last("USER") == f"{context['runAsUser']}:{context['runAsGroup']}", name
        assert rules.container_of(ALL, name)["image"] == image["name"]


def test_with_keda_the_other_autoscaler_is_taken_away() -> None:
    overlay = kustomization(KEDA)
    assert overlay["resources"] == ["../../base", "scaledobject.yaml"]
    (patch,) = read_yaml(overlay["patches"][0]["patch"])
    assert patch.pop("$patch") == "delete"
    assert f"{patch['kind']}/{patch['metadata']['name']}" == rules.SCALER


def test_the_secret_is_an_example_with_both_backends_and_no_password() -> None:
    (secret,) = SECRET.values()
    assert set(secret["stringData"]) == BACKENDS
    assert all(":CHANGE-ME@" in url for url in secret["stringData"].values())
    assert not any("secret" in name for name in kustomization(BASE)["resources"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for `kubectl kustomize`")
@pytest.mark.parametrize(
    ("folder", "scaler", "other"), [(BASE, rules.SCALER, SCALED), (KEDA, SCALED, rules.SCALER)]
)
def test_what_kustomize_makes_of_them_keeps_every_rule(
    folder: Path, scaler: str, other: str, tmp_path: Path
) -> None:
    # No cluster is known to it: it only puts files together.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull}
    command = ["kubectl", "kustomize", str(folder)]
    made = by_name(
        [subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout]
    )
    (settings,) = [name for name in made if name.startswith(rules.SETTINGS)]
    made[rules.SETTINGS] = made.pop(settings)
    assert scaler in made
    assert other not in made
    assert [complaint for rule in RULES for complaint in rule(made)] == []
    for name in made.keys() - {SCALED}:
        validate(made[name], VERSIONS[0], strict=True)
    assert rules.container_of(made)["image"] == f"registry.example/gossamer:{__version__}"
