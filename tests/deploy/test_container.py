"""The container, Compose and Kubernetes files: what they name exists, and gpuwatch knows their settings.

`python -m tools.prove_container` runs the steps of the Containerfile, and what they made.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch import __version__
from gpuwatch.secret import Secret
from gpuwatch.settings import Settings, load
from tests.checkout import ROOT
from tools.prove_container import Step, steps

DEPLOY = ROOT / "deploy"
STEPS = list(steps((DEPLOY / "Containerfile").read_text()))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in (DEPLOY / "kubernetes").glob("*.yaml")}
WORKLOADS = [one for found in MANIFESTS.values() for one in found if one["kind"] in {"Deployment", "StatefulSet"}]
IMAGE = f"gpuwatch:{__version__}"
URL = "postgresql+psycopg://gpuwatch:canary@postgres/gpuwatch"


def _texts(name: str) -> list[str]:
    return [step.text for step in STEPS if step.name == name]


def _env() -> dict[str, str]:
    """What the image sets."""
    return dict(text.split("=", 1) for text in _texts("ENV"))


# --- the image --------------------------------------------------------------------------------------------------------


def test_what_is_copied_exists_and_is_in_the_context() -> None:
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    copied = [word for text in _texts("COPY") if "--from" not in text for word in text.split()[:-1]]
    assert len(copied) > 5
    for word in copied:
        assert (ROOT / word).exists(), word
        assert any(word.startswith(line.removeprefix("!")) for line in ignore if line.startswith("!")), word
    assert ignore[0] == "*"


def test_the_image_has_a_user_that_is_not_root_and_one_folder_to_write() -> None:
    assert re.fullmatch(r"[1-9]\d+", _texts("USER")[-1])
    assert _texts("VOLUME") == ["/data"]
    assert (_env()["STATE_DIRECTORY"], _texts("WORKDIR")[-1]) == ("/data", "/data")
    assert f"--owner={_texts('USER')[-1]} " in _texts("RUN")[-1]


def test_signals_reach_the_program_and_not_a_shell() -> None:
    assert json.loads(_texts("ENTRYPOINT")[0]) == ["gpuwatch"]
    assert json.loads(_texts("CMD")[0])[0] == "run"
    assert _texts("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(_texts("HEALTHCHECK")[0].partition("CMD ")[2])[0] == "python"


def test_packages_come_from_the_locks_by_their_hashes() -> None:
    by_pip = [text for text in _texts("RUN") if "pip" in text]
    assert [
        text for text in by_pip if "--require-hashes" not in text and "--no-deps --no-build-isolation ." not in text
    ] == []
    assert all(":" in text.split()[0] for text in _texts("FROM"))  # a tag, never whatever is newest


def test_no_file_names_a_registry() -> None:
    named = [text.split()[0] for text in _texts("FROM")]
    named += [one["image"] for one in COMPOSE["services"].values()]
    named += [one["image"] for workload in WORKLOADS for one in _pod(workload)["containers"]]
    assert [name for name in named if "." in name.partition("/")[0] and "/" in name] == []


def test_the_steps_are_read_as_they_are_written() -> None:
    found = list(steps('# no step\nFROM a AS b\nRUN one \\\n    && two\nCMD ["x"]\n'))
    assert found == [Step("FROM", "a AS b"), Step("RUN", "one && two"), Step("CMD", '["x"]')]


# --- settings ---------------------------------------------------------------------------------------------------------


def _load(folder: Path, env: dict[str, str], secrets: set[str], toml: str) -> Settings:
    """The settings of a container, with its folders of secrets and settings below one of the test."""
    (folder / "run").mkdir()
    for name in secrets:
        (folder / "run" / name).write_text(URL if name == "gpuwatch_database_url" else f"secret-{name}")
    (folder / "gpuwatch.toml").write_text(toml.replace("/run/secrets", str(folder / "run")))
    env = {name: value.replace("/run/secrets", str(folder / "run")) for name, value in (_env() | env).items()}
    return load(str(folder / "gpuwatch.toml"), env=env, cwd=folder)


@pytest.mark.parametrize("service", ["gpuwatch", "standby"])
def test_gpuwatch_knows_the_settings_of_compose(service: str, tmp_path: Path) -> None:
    of_service = COMPOSE["services"][service]
    settings = _load(tmp_path, of_service["environment"], set(of_service["secrets"]), "dry_run = true\n")
    assert settings.database_url == URL
    assert settings.providers["vastai"].api_key == Secret("secret-gpuwatch_vast_api_key")
    (token,) = settings.web.tokens
    assert (token.name, token.scopes) == ("prometheus", ("read",))
    assert settings.web.probe_listen == "0.0.0.0:9464"


@pytest.mark.parametrize("name", ["gpuwatch", "two-replicas"])
def test_gpuwatch_knows_the_settings_of_kubernetes(name: str, tmp_path: Path) -> None:
    by_kind = {one["kind"]: one for one in MANIFESTS[name]}
    toml = by_kind["ConfigMap"]["data"]["gpuwatch.toml"]
    settings = _load(tmp_path, {}, set(by_kind["Secret"]["stringData"]), toml)
    assert [watch.name for watch in settings.watches] == ["h100"]
    assert settings.providers["vastai"].api_key == Secret("secret-gpuwatch_vast_api_key")
    assert settings.database_url == (URL if name == "two-replicas" else "sqlite:////data/gpuwatch.db")
    assert len(settings.web.tokens) == 1


# --- Compose ----------------------------------------------------------------------------------------------------------


def test_compose_names_what_exists() -> None:
    assert {COMPOSE["services"][name]["image"] for name in ("gpuwatch", "standby")} == {IMAGE}
    build = COMPOSE["services"]["gpuwatch"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    for one in COMPOSE["services"].values():
        assert set(one.get("secrets", ())) <= COMPOSE["secrets"].keys()
        for source in [mount.partition(":")[0] for mount in one["volumes"]]:
            named = source in COMPOSE["volumes"] or source == "./gpuwatch.toml" or (DEPLOY / source).exists()
            assert named, source
    page = (ROOT / "docs/container.md").read_text()
    for name in {Path(one["file"]).name for one in COMPOSE["secrets"].values()}:
        assert re.search(rf"\b{name}\b", page), name


def test_only_this_machine_reaches_the_published_ports() -> None:
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", ())]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_standby_has_a_state_of_its_own() -> None:
    first, second = (COMPOSE["services"][name] for name in ("gpuwatch", "standby"))
    assert (first["volumes"][1], second["volumes"][1]) == ("gpuwatch:/data", "standby:/data")
    differ = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    assert differ == {"hostname", "profiles", "volumes"}


def test_grafana_and_prometheus_find_their_files() -> None:
    grafana, prometheus = (COMPOSE["services"][name]["volumes"] for name in ("grafana", "prometheus"))
    boards = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/gpuwatch.yaml").read_text())
    assert f"./grafana:{boards['providers'][0]['options']['path']}:ro" in grafana
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert "./prometheus:/etc/prometheus:ro" in prometheus
    scrape = yaml.safe_load((DEPLOY / "prometheus/container.yml").read_text())
    assert (DEPLOY / "prometheus" / scrape["rule_files"][0]).is_file()
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == ["gpuwatch:9464"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed (Debian: prometheus)")
def test_prometheus_reads_its_file() -> None:
    words = ["promtool", "check", "config", "--syntax-only", str(DEPLOY / "prometheus/container.yml")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no Compose (Debian: docker-compose)")
def test_compose_reads_its_file(tmp_path: Path) -> None:
    """A copy, with the files that its owner writes."""
    shutil.copyfile(DEPLOY / "compose.yaml", tmp_path / "compose.yaml")
    (tmp_path / "secrets").mkdir()
    for one in COMPOSE["secrets"].values():
        (tmp_path / one["file"]).touch()
    words = ["docker-compose", "-f", str(tmp_path / "compose.yaml"), "--profile", "standby", "config"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def _pod(workload: dict[str, Any]) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one["kind"])
def test_a_pod_runs_as_the_image_is_made(workload: dict[str, Any]) -> None:
    (container,) = _pod(workload)["containers"]
    security = _pod(workload)["securityContext"]
    assert (container["image"], str(security["runAsUser"])) == (IMAGE, _texts("USER")[-1])
    assert (security["runAsNonRoot"], container["securityContext"]["readOnlyRootFilesystem"]) == (True, True)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (port,) = container["ports"]
    assert f":{port['containerPort']}" in _env()["GPUWATCH_WEB__PROBE_LISTEN"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert mounts.keys() == {"/data", "/etc/gpuwatch", _env()["CREDENTIALS_DIRECTORY"], "/tmp"}
    assert _pod(workload)["terminationGracePeriodSeconds"] >= 30


@pytest.mark.parametrize("name", ["gpuwatch", "two-replicas"])
def test_manifests_name_each_other(name: str) -> None:
    by_kind = {one["kind"]: one for one in MANIFESTS[name]}
    workload = next(one for one in MANIFESTS[name] if one in WORKLOADS)
    claims = [one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", ())]
    volumes = {one["name"]: one for one in _pod(workload)["volumes"]}
    mounted = {one["name"] for one in _pod(workload)["containers"][0]["volumeMounts"]}
    assert mounted == volumes.keys() | set(claims)
    assert volumes["settings"]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == by_kind["Secret"]["metadata"]["name"]
    if "data" in volumes:
        claimed = volumes["data"]["persistentVolumeClaim"]["claimName"]
        assert claimed == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert labels == workload["spec"]["selector"]["matchLabels"] == by_kind["Service"]["spec"]["selector"]
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] == "probe"


def test_one_file_is_written_by_one_daemon_and_one_postgresql_by_two() -> None:
    deployment, stateful = sorted(WORKLOADS, key=lambda one: str(one["kind"]))
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert (stateful["spec"]["replicas"], stateful["spec"]["serviceName"]) == (2, "gpuwatch")


def test_the_monitor_scrapes_the_service_with_the_token() -> None:
    (monitor,) = MANIFESTS["servicemonitor"]
    by_kind = {one["kind"]: one for one in MANIFESTS["gpuwatch"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == by_kind["Service"]["spec"]["ports"][0]["name"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= by_kind["Service"]["metadata"]["labels"].items()
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["key"] in by_kind["Secret"]["stringData"]
    assert f"/run/secrets/{credentials['key']}" in by_kind["ConfigMap"]["data"]["gpuwatch.toml"]
