"""The parts of docker-compose.yml fit together: schema, hosts, ports, files, passwords, versions."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

import rxjobs as rj
from rxjobs.settings import load
from tests.observability.places import COMPOSE, DATA_SOURCES, GRAFANA, OBSERVABILITY, PROVIDERS, ROOT, read, texts

SERVICES = read(COMPOSE)["services"]
CONFIGS = {
    "otel-collector": [OBSERVABILITY / "otel-collector.yaml"],
    "jaeger": [OBSERVABILITY / "jaeger.yaml", OBSERVABILITY / "jaeger-ui.json"],
    "prometheus": [OBSERVABILITY / "prometheus.yml"],
    "grafana": [DATA_SOURCES, PROVIDERS],
}
BUILT_IN = {"postgres": {5432}, "prometheus": {9090}, "grafana": {3000}}
"""Where an image listens without being told."""
ADDRESS = re.compile(r"(?<![\w.-])([a-z][a-z0-9-]*):(\d{2,5})\b")
PLACE = re.compile(r"(?<![\w.])/(?:etc|var)/[\w./-]+")


def told_to_listen(service):
    """The ports that a service's own configuration opens."""
    everything = [text for path in CONFIGS.get(service, ()) for text in texts(read(path))]
    ports = {int(port) for text in everything for port in re.findall(r"^0\.0\.0\.0:(\d+)$", text)}
    if service == "otel-collector":
        (reader,) = read(CONFIGS[service][0])["service"]["telemetry"]["metrics"]["readers"]
        ports.add(reader["pull"]["exporter"]["prometheus"]["port"])
    return ports | BUILT_IN.get(service, set())


def mounts(service):
    """What a service sees of the repository: the path there, by the path it has in the container."""
    found = {}
    for volume in SERVICES[service].get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            found[target] = ROOT / source
    return found


def schema_check(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_file_is_one_that_compose_understands():
    ran = schema_check(COMPOSE)
    assert ran.returncode == 0, ran.stdout


def test_a_misspelt_key_is_found(tmp_path):
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text("utf-8").replace("healthcheck:", "healtcheck:", 1), "utf-8")
    assert schema_check(wrong).returncode != 0


@pytest.mark.parametrize("service", SERVICES)
def test_hosts_and_ports_that_are_asked_are_there(service):
    of_compose = {key: value for key, value in SERVICES[service].items() if key != "image"}  # whose version reads like a port
    everything = [*texts(of_compose), *(text for path in CONFIGS.get(service, ()) for text in texts(read(path)))]
    for text in everything:
        for host, port in ADDRESS.findall(re.sub(r"\$\{[^}]*\}", "", text)):
            if host in SERVICES:
                assert int(port) in told_to_listen(host), text
            elif host == "localhost" and not text.startswith("http://localhost:3000/d/"):
                assert int(port) in told_to_listen(service), text


def test_every_host_that_is_named_is_a_service():
    for service, paths in CONFIGS.items():
        for text in (text for path in paths for text in texts(read(path))):
            for host in re.findall(r"https?://([\w.-]+)", text):
                assert host in {*SERVICES, "localhost"}, (service, text)
    asked = {
        host for text in texts(SERVICES) for host in re.findall(r"(?:https?://|@)([\w-]+):\d", re.sub(r"\$\{[^}]*\}", "", text))
    }
    assert asked <= {*SERVICES, "localhost"}


def test_the_worker_sends_to_where_the_collector_listens():
    endpoint = SERVICES["worker"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    host, port = re.fullmatch(r"http://([\w-]+):(\d+)", endpoint).groups()
    assert host == "otel-collector"
    assert int(port) in told_to_listen(host)


def test_ports_are_open_to_this_machine_alone_and_each_once():
    published = [(name, port.split(":")) for name, service in SERVICES.items() for port in service.get("ports", ())]
    assert {address for _, (address, _, _) in published} == {"127.0.0.1"}
    assert len({port for _, (_, port, _) in published}) == len(published)
    for name, (_, _, inside) in published:
        assert int(inside) in told_to_listen(name), name
    # what people and Jaeger's menu are told
    assert {"3000", "16686", "9090"} <= {port for _, (_, port, _) in published}


@pytest.mark.parametrize("service", SERVICES)
def test_files_that_are_named_are_mounted(service):
    seen = mounts(service)
    assert all(path.exists() for path in seen.values())
    named = {
        place
        for text in [
            *texts({key: SERVICES[service].get(key) for key in ("command", "environment")}),
            *(text for path in CONFIGS.get(service, ()) for text in texts(read(path))),
        ]
        for place in PLACE.findall(text)
    }
    for place in named:
        target = next((target for target in seen if place == target or place.startswith(f"{target}/")), None)
        assert target, f"{service} has no {place}"
        assert (seen[target] / place.removeprefix(target).lstrip("/") if place != target else seen[target]).exists(), place


def test_prometheus_finds_its_rules():
    folder = next(path for target, path in mounts("prometheus").items() if target == "/etc/prometheus/rules")
    assert all((folder.parent / path).exists() for path in read(OBSERVABILITY / "prometheus.yml")["rule_files"])


def test_versions_are_pinned():
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", service["image"]), name
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)


def test_what_runs_on_is_looked_at():
    looked_at_by_others = {name for name in SERVICES if f"http://{name}:13133" in str(SERVICES["health"]["healthcheck"]["test"])}
    assert looked_at_by_others == {"otel-collector", "jaeger"}
    lacks = {name for name, service in SERVICES.items() if "healthcheck" not in service}
    assert lacks - looked_at_by_others == {"migrate"}  # which ends


def test_who_is_waited_for_says_when_it_is_ready():
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in SERVICES, name
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], name


def test_no_password_is_left_at_a_default_without_saying_so():
    text = COMPOSE.read_text("utf-8")
    head = text[: text.index("\nname:")]
    defaults = set(re.findall(r"\$\{(\w*PASSWORD\w*):-", text))
    assert defaults == {"POSTGRES_PASSWORD", "GRAFANA_DATABASE_PASSWORD", "GRAFANA_ADMIN_PASSWORD"}
    assert "DEFAULTS" in head
    assert all(name in head for name in defaults)
    assert not re.findall(r"PASSWORD\w*: (?!\$\{)", text)


def test_the_password_of_the_data_source_is_that_of_its_role():
    (source,) = (one for one in read(DATA_SOURCES)["datasources"] if "user" in one)
    assert source["secureJsonData"]["password"] == "$GRAFANA_DATABASE_PASSWORD"
    assert (
        SERVICES["postgres"]["environment"]["GRAFANA_DATABASE_PASSWORD"]
        == SERVICES["grafana"]["environment"]["GRAFANA_DATABASE_PASSWORD"]
    )
    made = (OBSERVABILITY / "postgres.sql").read_text("utf-8")
    assert f"CREATE ROLE {source['user']} LOGIN" in made
    assert "GRAFANA_DATABASE_PASSWORD" in made
    assert source["jsonData"]["database"] == SERVICES["postgres"]["environment"]["POSTGRES_DB"]


def test_what_is_set_for_the_worker_is_a_setting():
    for service in ("worker", "migrate"):
        ours = {name: value for name, value in SERVICES[service]["environment"].items() if name.startswith("RXJOBS_")}
        assert ours.keys() <= {f"RXJOBS_{name.upper()}" for name in load({}).__slots__}


def test_the_worker_runs_an_app_that_there_is():
    command, path = SERVICES["worker"]["command"]
    module, _, name = path.partition(":")
    assert command == "run"
    assert isinstance(getattr(importlib.import_module(module), name), rj.App)
    assert path in (ROOT / "Dockerfile").read_text("utf-8")


def test_the_image_is_made_of_files_that_there_are_and_runs_as_nobody_special():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for name in line.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", text, re.MULTILINE)
    assert text.index("USER") < text.index("ENTRYPOINT")


def test_a_stop_waits_longer_than_jobs_have():
    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert seconds > load({}).shutdown_grace


def test_dashboards_are_where_grafana_is_told_to_look():
    (provider,) = read(PROVIDERS)["providers"]
    assert mounts("grafana")[provider["options"]["path"]] == GRAFANA / "dashboards"
    assert mounts("grafana")["/etc/grafana/provisioning"] == GRAFANA / "provisioning"
