"""What must hold for the manifests. Each rule says what is wrong, and nothing if all is right."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Network, ip_address, ip_network
from typing import Any

from gossamer.config.load import load_settings
from gossamer.errors import GossamerError

from .reading import BACKENDS, Document, understood

#: Documents by kind and name.
Manifests = dict[str, Document]

WORKER = "Deployment/gossamer-worker"
MIGRATE = "Job/gossamer-migrate"
SERVICE = "Service/gossamer-metrics"
BUDGET = "PodDisruptionBudget/gossamer-worker"
SCALER = "HorizontalPodAutoscaler/gossamer-worker"
SCALED = "ScaledObject/gossamer-worker"
NETWORK = "NetworkPolicy/gossamer"
SETTINGS = "ConfigMap/gossamer-settings"
_DRAIN = ["sh", "-c", "kill -TERM 1"]
LABELS = {"app.kubernetes.io/name": "gossamer", "app.kubernetes.io/component": "worker"}
#: What autoscalers go by. Each worker reports the whole queue of a crawl, and an idle one reports none.
QUEUE, ALWAYS = "gossamer_queue_depth", "gossamer_build_info"
WHOLE_QUEUE = f"sum(max by (job, exported_job) ({QUEUE})) or 0 * count({ALWAYS})"
#: The first and the last address of what must stay out of reach, and metadata services wherever they are.
INSIDE = (
    *("10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"),
    *("100.64.0.0", "100.127.255.255", "169.254.0.0", "169.254.169.254", "169.254.255.255"),
    *(
        "127.0.0.1",
        "0.0.0.0",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ),
    *(
        "fc00::",
        "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "febf::1",
    ),
    *(
        "::1",
        "::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
        "2001::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:a9fe:a9fe::",
        "ff02::1",
        "fec0::1",
    ),
)
OUTSIDE = ("1.1.1.1", "9.255.255.255", "11.0.0.0", "172.32.0.0", "100.128.0.0", "2606:4700::1111", "2a00::1")


def pod_of(manifests: Manifests, name: str) -> Any:
    return manifests[name]["spec"]["template"]["spec"]


def pods(manifests: Manifests) -> Iterator[tuple[str, Any]]:
    """Yield each pod with the name of what makes it."""
    yield from ((name, pod_of(manifests, name)) for name in (WORKER, MIGRATE))


def container_of(manifests: Manifests, name: str = WORKER) -> Any:
    (container,) = pod_of(manifests, name)["containers"]
    return container


def namespace_neutral(manifests: Manifests) -> Iterator[str]:
    for name, document in manifests.items():
        if "namespace" in document["metadata"]:
            yield f"{name} has a namespace"


def without_rights(manifests: Manifests) -> Iterator[str]:
    """What the Pod Security Standard "restricted" asks for, and a root that cannot be written to."""
    for name, pod in pods(manifests):
        context = pod.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or context.get("runAsUser", 0) == 0:
            yield f"{name} may run as root"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name} may make any system call"
        own = container_of(manifests, name).get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{name} may gain rights"
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"{name} may change its own files"
        if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name} sees the node"
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name} has a token for the cluster"


def bounded_places_to_write(manifests: Manifests) -> Iterator[str]:
    for name, pod in pods(manifests):
        mounts = {each["mountPath"]: each["name"] for each in container_of(manifests, name)["volumeMounts"]}
        bounded = {each["name"] for each in pod["volumes"] if "sizeLimit" in each.get("emptyDir", {})}
        if set(mounts) != {"/jobs", "/tmp"} or set(mounts.values()) != bounded:
            yield f"{name} must be able to write to /jobs and /tmp, with a bound"


def no_variables_but_ours(manifests: Manifests) -> Iterator[str]:
    for name, pod in pods(manifests):
        if pod.get("enableServiceLinks") is not False:
            yield f"{name}: a service called gossamer-… would be taken for a setting"


def settings_that_exist(manifests: Manifests) -> Iterator[str]:
    given = manifests[SETTINGS]["data"]
    if given.keys() & BACKENDS:
        yield "passwords belong into the secret"
    try:
        load_settings({}, given, None)
    except GossamerError as error:
        yield str(error)
    sources = [next(iter(each.values()))["name"] for each in container_of(manifests)["envFrom"]]
    if [each.rpartition("-")[0] if each.count("-") > 1 else each for each in sources] != [
        "gossamer-settings",
        "gossamer-backends",
    ]:
        yield f"a worker reads {sources}"


def probes(manifests: Manifests) -> Iterator[str]:
    container = container_of(manifests)
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        if container.get(probe, {}).get("httpGet") != {"path": path, "port": "metrics"}:
            yield f"{probe} does not ask {path}"
    if container["ports"] != [{"name": "metrics", "containerPort": 9464}]:
        yield "the port has another name or number"
    served = understood(container["args"], manifests[SETTINGS]["data"])
    if served.get("health_port") != 9464 or served.get("health_host") != "0.0.0.0":
        yield "health is served elsewhere than it is asked for"


def time_to_drain(manifests: Manifests) -> Iterator[str]:
    # As the worker itself understands it.
    grace = understood(container_of(manifests)["args"], manifests[SETTINGS]["data"])["grace_seconds"]
    if pod_of(manifests, WORKER).get("terminationGracePeriodSeconds", 30) <= grace:
        yield "a worker is killed before it has drained"
    if container_of(manifests).get("lifecycle") != {"preStop": {"exec": {"command": _DRAIN}}}:
        yield "the drain does not begin at once"


def resources(manifests: Manifests) -> Iterator[str]:
    for name, _ in pods(manifests):
        given = container_of(manifests, name).get("resources", {})
        if not {"cpu", "memory"} <= set(given.get("requests", ())) or "memory" not in given.get("limits", ()):
            yield f"{name} does not say what it needs"


def spread_over_nodes(manifests: Manifests) -> Iterator[str]:
    spread = pod_of(manifests, WORKER).get("topologySpreadConstraints", [])
    if {each["topologyKey"] for each in spread} != {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}:
        yield "all workers may land on one node"
    if any(each["whenUnsatisfiable"] != "ScheduleAnyway" for each in spread):
        yield "a full node would keep workers from starting"
    yield from (
        "the spread counts other pods" for each in spread if each["labelSelector"]["matchLabels"] != LABELS
    )


def selectors_that_find_the_workers(manifests: Manifests) -> Iterator[str]:
    found = {
        WORKER: manifests[WORKER]["spec"]["selector"]["matchLabels"],
        SERVICE: manifests[SERVICE]["spec"]["selector"],
        BUDGET: manifests[BUDGET]["spec"]["selector"]["matchLabels"],
        "template": manifests[WORKER]["spec"]["template"]["metadata"]["labels"],
    }
    yield from (f"{name} selects {labels}" for name, labels in found.items() if labels != LABELS)


def a_budget_that_lets_nodes_be_emptied(manifests: Manifests) -> Iterator[str]:
    spec = manifests[BUDGET]["spec"]
    if "minAvailable" in spec or spec.get("maxUnavailable") in {None, 0, "0%"}:
        yield "with one worker, no node could be emptied"


def metrics_of_each_worker(manifests: Manifests) -> Iterator[str]:
    service = manifests[SERVICE]
    wanted = {"prometheus.io/scrape": "true", "prometheus.io/port": "9464", "prometheus.io/path": "/metrics"}
    if service["metadata"].get("annotations") != wanted:
        yield "Prometheus does not know what to ask"
    if service["spec"].get("clusterIP") != "None" or service["spec"]["ports"][0]["targetPort"] != "metrics":
        yield "only one worker would be asked, or none"


def scaled_by_the_queue(manifests: Manifests) -> Iterator[str]:
    if "replicas" in manifests[WORKER]["spec"]:
        yield "applying it again would undo the autoscaler"
    if SCALER in manifests:
        yield from _autoscaler(manifests[SCALER]["spec"])
    if SCALED in manifests:
        yield from _scaled_object(manifests[SCALED])
    if not manifests.keys() & {SCALER, SCALED}:
        yield "nothing scales the workers"


def _autoscaler(spec: Any) -> Iterator[str]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gossamer-worker"}
    metrics = [each.get("external", {}) for each in spec["metrics"]]
    if spec["scaleTargetRef"] != target or not 1 <= spec["minReplicas"] < spec["maxReplicas"]:
        yield "the autoscaler scales something else, or to nothing"
    if [each.get("metric", {}).get("name") for each in metrics] != [QUEUE]:
        yield "the autoscaler looks elsewhere"
    elif metrics[0]["target"]["type"] != "AverageValue":
        yield "the queue must be shared among the workers, not compared as a whole"


def _scaled_object(document: Any) -> Iterator[str]:
    spec = document["spec"]
    if document["apiVersion"] != "keda.sh/v1alpha1" or spec["scaleTargetRef"] != {"name": "gossamer-worker"}:
        yield "KEDA scales something else"
    if not 1 <= spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]:
        yield "without a worker nobody reports the queue"
    (trigger,) = spec["triggers"]
    wanted = {"serverAddress", "query", "threshold", "ignoreNullValues"}
    if trigger["type"] != "prometheus" or set(trigger["metadata"]) != wanted:
        yield "KEDA needs a server, a query, a threshold, and to know that no answer is not an empty queue"
    elif trigger["metadata"]["ignoreNullValues"] != "false":
        yield "no answer passes for an empty queue"
    elif trigger["metadata"]["query"] != WHOLE_QUEUE or not _texts(trigger["metadata"]):
        yield "KEDA must count the queue of each crawl once, and 0 if workers have none to report"


def _texts(metadata: dict[str, Any]) -> bool:
    """Tell whether all values are texts, as KEDA wants them."""
    return all(isinstance(value, str) for value in metadata.values())


def no_way_inside(manifests: Manifests) -> Iterator[str]:
    spec = manifests[NETWORK]["spec"]
    if spec["policyTypes"] != ["Ingress", "Egress"] or spec["podSelector"]["matchLabels"] != {
        "app.kubernetes.io/name": "gossamer"
    }:
        yield "the policy does not cover every pod in both directions"
    blocks = [peer["ipBlock"] for rule in spec["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer]
    yield from (f"{text} can be reached" for text in INSIDE if _reachable(text, blocks))
    yield from (f"{text} cannot be reached" for text in OUTSIDE if not _reachable(text, blocks))
    for block in blocks:
        yield from _bad_exceptions(block)
    if any(not rule.get("to") or not rule.get("ports") for rule in spec["egress"]):
        yield "a rule without an end or without a port lets everything through"


def _reachable(text: str, blocks: list[Any]) -> bool:
    address = ip_address(text)
    return any(
        address in ip_network(block["cidr"])
        and not any(address in ip_network(each) for each in block["except"])
        for block in blocks
    )


def _bad_exceptions(block: Any) -> Iterator[str]:
    """Yield the exceptions that Kubernetes would refuse."""
    whole = ip_network(block["cidr"])
    for text in block["except"]:
        network = ip_network(text)
        if network.version != whole.version or network.prefixlen <= whole.prefixlen:
            yield f"{text} is not inside {whole}"
        if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
            yield f"{text} is an IPv4 network in disguise, and is refused"


def a_way_to_names_and_backends(manifests: Manifests) -> Iterator[str]:
    peers: dict[str, set[tuple[str, int]]] = {}
    for rule in manifests[NETWORK]["spec"]["egress"]:
        for peer in rule["to"]:
            if "podSelector" in peer:
                label = next(iter(peer["podSelector"].get("matchLabels", {"": "any pod"}).values()))
                peers[label] = {(port["protocol"], port["port"]) for port in rule["ports"]}
    wanted = {"kube-dns": {("UDP", 53), ("TCP", 53)}, "redis": {("TCP", 6379)}, "postgresql": {("TCP", 5432)}}
    if peers != wanted:
        yield f"inside the cluster a worker reaches {peers}"


def asked_by_prometheus_alone(manifests: Manifests) -> Iterator[str]:
    rules = manifests[NETWORK]["spec"]["ingress"]
    ports = [port["port"] for rule in rules for port in rule.get("ports", [{"port": 0}])]
    asking = [peer.get("podSelector") for rule in rules for peer in rule.get("from", [{}])]
    if ports != [9464] or asking != [{"matchLabels": {"app.kubernetes.io/name": "prometheus"}}]:
        yield "others than Prometheus may connect"


def tables_first(manifests: Manifests) -> Iterator[str]:
    spec = manifests[MIGRATE]["spec"]
    container = container_of(manifests, MIGRATE)
    if container["args"] != ["db", "upgrade"] or container["envFrom"] != [
        {"secretRef": {"name": "gossamer-backends"}}
    ]:
        yield "the job must upgrade the database of the secret"
    if not {"backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"} <= spec.keys():
        yield "the job has no end"
    if pod_of(manifests, MIGRATE)["restartPolicy"] != "Never":
        yield "the log of a failure is lost"
