"""The manifests under docs/deploy/kubernetes: their schemas, what they refer to, our own rules; without a cluster."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "deploy" / "kubernetes"
VERSION = "1.30"  #: of Kubernetes: the oldest schema that is asked
NAMES = ("worker_token", "admin_token", "voter_key", "proxy_token", "store_password")
#: Of a LeaderWorkerSet, which is no part of Kubernetes: the fields that we use, and where pods are described.
LEADER_WORKER_SET = {
    "spec": {"replicas", "rolloutStrategy", "leaderWorkerTemplate"},
    "leaderWorkerTemplate": {"size", "restartPolicy", "leaderTemplate", "workerTemplate"},
}

Document = dict[str, Any]


def documents() -> Iterator[tuple[str, Document]]:
    for path in sorted(FOLDER.rglob("*.yaml")):
        if path.name not in ("kustomization.yaml", "names.yaml"):
            for document in yaml.safe_load_all(path.read_text()):
                name = f"{path.relative_to(FOLDER)} {document['kind']} {document['metadata']['name']}"
                yield name, document


DOCUMENTS = dict(documents())


def pods(document: Document) -> Iterator[Document]:
    """The pod templates of a document."""
    spec = document.get("spec", {})
    if "template" in spec:
        yield spec["template"]
    group = spec.get("leaderWorkerTemplate", {})
    yield from (group[name] for name in ("leaderTemplate", "workerTemplate") if name in group)


PODS = {f"{name} {number}": pod for name, document in DOCUMENTS.items() for number, pod in enumerate(pods(document))}


def validate(document: Document) -> None:
    """Raises where a field is unknown, missing or of another type."""
    if document["kind"] != "LeaderWorkerSet":
        kubernetes_validate.validate(document, VERSION, strict=True)
        return
    spec = document["spec"]
    assert set(spec) == LEADER_WORKER_SET["spec"]
    assert set(spec["leaderWorkerTemplate"]) == LEADER_WORKER_SET["leaderWorkerTemplate"]
    for pod in pods(document):
        as_template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pod}
        kubernetes_validate.validate(as_template, VERSION, strict=True)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_manifest_follows_its_schema(name: str) -> None:
    validate(DOCUMENTS[name])


def test_the_schema_check_finds_a_wrong_field() -> None:
    document = next(document for name, document in DOCUMENTS.items() if "Deployment webui" in name)
    broken = yaml.safe_load(yaml.safe_dump(document))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        validate(broken)


def test_there_are_two_of_each_and_three_stores() -> None:
    replicas = {
        document["metadata"]["name"]: document["spec"]["replicas"]
        for document in DOCUMENTS.values()
        if document["kind"] in ("StatefulSet", "Deployment")
    }
    assert replicas == {"store": 3, "controller": 2, "webui": 2, "worker": 2}
    disrupted = {document["metadata"]["name"] for document in DOCUMENTS.values() if "Disruption" in document["kind"]}
    assert disrupted == set(replicas)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_locked_down(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["enableServiceLinks"] is False  # else a Service named agon sets AGON_PORT to an address
    assert spec["automountServiceAccountToken"] is False
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", PODS)
def test_secrets_are_files_that_exist(name: str) -> None:
    spec = PODS[name]["spec"]
    [volume] = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
    assert volume["secretName"] == "agon"
    assert volume["defaultMode"] == 0o440
    shown = {f"/run/secrets/agon/{item['path']}" for item in volume.get("items", [{"path": key} for key in NAMES])}
    for container in spec["containers"]:
        environment = {row["name"]: row.get("value") for row in container.get("env", [])}
        assert not [key for key in environment if key.endswith(("_TOKEN", "_KEY", "_PASSWORD"))]
        assert {value for key, value in environment.items() if key.endswith("_FILE")} <= shown


@pytest.mark.parametrize("name", PODS)
def test_a_pod_mounts_what_it_has_and_is_asked_at_ports_that_it_opens(name: str) -> None:
    spec = PODS[name]["spec"]
    document = DOCUMENTS[name.rpartition(" ")[0]]
    claims = {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
    volumes = {volume["name"] for volume in spec["volumes"]} | claims
    for container in spec["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        ports = {port["name"] for port in container.get("ports", [])}
        probes = [container[key] for key in ("startupProbe", "livenessProbe", "readinessProbe") if key in container]
        asked = [probe[kind] for probe in probes for kind in ("httpGet", "tcpSocket") if kind in probe]
        assert {probe["port"] for probe in asked} <= ports
        assert {probe["path"] for probe in asked if "path" in probe} <= {"/health", "/ready"}


def test_services_budgets_and_policies_choose_pods_that_exist() -> None:
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    chosen: list[dict[str, str]] = []
    for document in DOCUMENTS.values():
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            chosen.append(spec["selector"])
        elif document["kind"] in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
            chosen.append(spec["selector"]["matchLabels"])
        elif document["kind"] == "NetworkPolicy":
            peers = [peer for rule in spec.get("ingress", []) for peer in rule["from"]]
            peers += [peer for rule in spec.get("egress", []) for peer in rule["to"]]
            selectors = [spec["podSelector"], *(peer["podSelector"] for peer in peers if "podSelector" in peer)]
            chosen += [selector["matchLabels"] for selector in selectors if selector]
    assert len(chosen) > 20
    assert [each for each in chosen if not any(each.items() <= own.items() for own in labels)] == []


def test_the_network_admits_what_services_ask_of_one_another() -> None:
    """Each connection that a setting names is admitted on both sides: where it leaves and where it arrives."""
    policies = {
        document["metadata"]["name"]: document["spec"]
        for document in DOCUMENTS.values()
        if document["kind"] == "NetworkPolicy"
    }

    def admitted(rules: list[Document], peer_key: str, app: str, port: int) -> bool:
        return any(
            {"podSelector": {"matchLabels": {"app": app}}} in rule[peer_key]
            and port in [entry["port"] for entry in rule["ports"]]
            for rule in rules
        )

    wanted = [("webui", "controller", 8100), ("worker", "controller", 8100), ("controller", "worker", 8200)]
    wanted += [("controller", "store", 6379), ("controller", "store", 26379), ("store", "store", 6379)]
    for source, target, port in wanted:
        assert admitted(policies[source]["egress"], "to", target, port), (source, target, port)
        assert admitted(policies[target]["ingress"], "from", source, port), (source, target, port)
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_kustomizations_name_files_that_exist() -> None:
    found = sorted(FOLDER.rglob("kustomization.yaml"))
    assert len(found) == 7
    for path in found:
        kustomization = yaml.safe_load(path.read_text())
        assert set(kustomization) <= {
            "apiVersion", "kind", "namespace", "resources", "images", "configMapGenerator", "secretGenerator",
            "nameSuffix", "labels", "patches", "configurations",
        }  # fmt: skip
        named = [*kustomization["resources"], *kustomization.get("configurations", [])]
        named += [file for row in kustomization.get("configMapGenerator", []) for file in row.get("files", [])]
        assert [name for name in named if not (path.parent / name).exists()] == []
    arena = yaml.safe_load((FOLDER / "arena" / "kustomization.yaml").read_text())
    assert {Path(name).name for name in arena["secretGenerator"][0]["files"]} == set(NAMES)


def test_what_kustomize_makes_follows_the_schemas(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("secrets"))
    (copy / "arena" / "secrets").mkdir()
    for name in NAMES:
        (copy / "arena" / "secrets" / name).write_text("a secret for a test")
    answer = subprocess.run(
        [kubectl, "kustomize", str(copy / "two-hosts")], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    made = list(yaml.safe_load_all(answer.stdout))
    for document in made:
        validate(document)
    assert {document["metadata"].get("namespace", "agon") for document in made} == {"agon"}
    names = {(document["kind"], document["metadata"]["name"]) for document in made}
    assert {("Deployment", "worker-raven"), ("Deployment", "worker-robin"), ("LeaderWorkerSet", "two-hosts")} <= names
    [secret] = [name for kind, name in names if kind == "Secret"]
    named = {
        volume["secret"]["secretName"]
        for document in made
        for pod in pods(document)
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert named == {secret}
