"""compose/ matches the code: services are the deployment's processes, with limits for each.

These checks need no engine; tests/e2e runs the stack.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML
from typer.main import get_command

from slackwater.cli import send
from slackwater.cli.app import app
from slackwater.deployment.parse import load_deployment
from slackwater.exporter.controllers import controller_metrics
from slackwater.exporter.metrics import ResultMetrics, heartbeat_metrics
from slackwater.machine.broker_security import BROKER
from slackwater.machine.secured_stack import INSIDE, OUTSIDE, PRODUCER
from slackwater.model.durations import parse_duration_us
from slackwater_spark.session import CLUSTER_SECURITY, SECRET_CHARS_MIN

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "compose"
ONE_SHOT = {"topics", "spark-secret", "secret", "apply"}
ONE_SHOT |= {f"topics-{place}" for place in ("centre", "north", "south")}
SPARK = {"spark-master", "spark-worker-1", "spark-worker-2"}


def load(path: Path) -> dict[str, Any]:
    yaml = YAML(typ="safe")
    yaml.constructor.add_constructor("!override", lambda of, node: of.construct_sequence(node))
    loaded: dict[str, Any] = yaml.load(path)
    return loaded


STACK = load(COMPOSE / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
NODES: dict[str, dict[str, Any]] = load(COMPOSE / "nodes.yaml")["services"]
AT_SITES: dict[str, dict[str, Any]] = load(COMPOSE / "sites.yaml")["services"]
STACKS = {"compose": SERVICES, "nodes": NODES, "sites": AT_SITES}


EACH = [
    (stack, name)
    for stack, services in STACKS.items()
    for name, service in services.items()
    if "extends" not in service
]


def test_the_stack_of_nodes_knows_its_controllers_and_has_what_nodes_can_run() -> None:
    deployment = load_deployment(COMPOSE / "nodes-deployment.yaml")
    assert all(stream.topic for stream in deployment.streams.values())
    by_service = {name: each["command"] for name, each in NODES.items() if "command" in each}
    commands = [*by_service.values()]
    controllers = [each for each in commands if each[:2] == ["slackwater", "controller"]]
    peers = {
        f"{each[each.index('--name') + 1]}={name}:7101"
        for name, each in by_service.items()
        if each in controllers
    }
    assert len(peers) == 3
    for each in controllers:
        assert {*each[each.index("--peers") + 1].split(",")} == peers
    assert {*NODES["node-1"]["environment"]["SLACKWATER_CONTROLLERS"].split(",")} == peers
    nodes = [each for each in commands if each[:2] == ["slackwater", "node"]]
    labels = {each[each.index("--label") + 1] for each in nodes if "--label" in each}
    assert {f"site={s.site}" for s in deployment.streams.values() if s.site} <= labels


@pytest.mark.parametrize("site", [None, "north", "south"])
def test_each_place_of_the_stack_of_sites_has_its_part_of_the_file(
    site: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "VALUES_MAX", 100)
    file, place = COMPOSE / "sites-deployment.yaml", site or "centre"
    here = load_deployment(file, site=site)
    program, command, *rest = AT_SITES[place]["command"]
    assert (program, command) == ("slackwater", "up")
    assert parsed(command, rest)["site"] == site
    program, command, *rest = AT_SITES[f"topics-{place}"]["command"]
    assert (program, command) == ("slackwater", "topics")
    assert parsed(command, rest)["site"] == site
    sensors = [each["command"] for name, each in AT_SITES.items() if name.startswith("room-")]
    given = [parsed("send", rest) for _, _, *rest in sensors]
    at_place = {each["stream"]: each for each in given if each["site"] == site}
    read = {name for name, stream in here.streams.items() if not stream.elsewhere}
    assert at_place.keys() == read - {"lab"}, "lab is the user's"
    for name, each in at_place.items():
        values = ROOT / "tests/data/room_climate" / each["values"].relative_to("/sensors")
        assert send.read_values(here.streams[name], values)["temperature"]
        every_us, expected_us = parse_duration_us(each["every"]), here.streams[name].expect_every_us
        assert expected_us is not None
        assert every_us * 2 < expected_us


def test_a_site_shares_with_the_centre_the_network_of_its_link_alone() -> None:
    networks = {name: {*each["networks"]} for name, each in AT_SITES.items()}
    links = {"link-north", "link-south"}
    assert networks["kafka-centre"] == {"centre", *links}
    sites = load(COMPOSE / "sites-deployment.yaml")["sites"]
    for site, of in sites.items():
        assert networks[site] == {site, f"link-{site}"}
        own = [name for name, each in AT_SITES.items() if site in each["networks"]]
        assert [name for name in own if networks[name] != {site}] == [site]
        assert f"kafka-{site}:19092" == of["bootstrap"]
        advertised = AT_SITES[f"kafka-{site}"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        assert advertised.endswith(f"INSIDE://{of['bootstrap']}")
        assert AT_SITES[site]["environment"]["SLACKWATER_BOOTSTRAP"] == of["bootstrap"]
        assert of["centre"] == AT_SITES["centre"]["environment"]["SLACKWATER_BOOTSTRAP"]


def parsed(command: str, arguments: list[str]) -> dict[str, Any]:
    """Return what a command of slackwater reads."""
    group: Any = get_command(app)
    params: dict[str, Any] = group.commands[command].make_context(command, [*arguments]).params
    return params


def test_all_services_of_the_stack_reach_its_controller() -> None:
    program, command, *rest = SERVICES["controller"]["command"]
    assert (program, command) == ("slackwater", "controller")
    given = parsed(command, rest)
    assert given["peers"] == f"{given['name']}={SERVICES['controller']['hostname']}:7101"
    assert given["listen"] == "0.0.0.0:7101"
    for name in ("controller", "apply", "node", "exporter", "gateway"):
        assert "secret:/secret:ro" in SERVICES[name]["volumes"], name
    for name in ("apply", "node", "gateway"):
        environment = SERVICES[name]["environment"]
        assert environment["SLACKWATER_CONTROLLERS"] == "controller:7101"
        assert environment["SLACKWATER_SECRET_FILE"] == "/secret/controllers"
    for option in ("--controllers=controller:7101", "--secret-file=/secret/controllers"):
        assert option in SERVICES["exporter"]["command"]
    program, command, *rest = SERVICES["node"]["command"]
    assert (program, command) == ("slackwater", "node")
    assert parsed(command, rest)["data_dir_"] == Path("/data")
    assert "node:/data" in SERVICES["node"]["volumes"]


def test_the_page_is_on_this_machine_only_and_asks_for_a_token_in_the_secured_stack() -> None:
    (port,) = SERVICES["gateway"]["ports"]
    assert port.startswith("127.0.0.1:")
    for service, file in ((SERVICES["gateway"], None), (SECURED["gateway"], Path("/kafka/tokens"))):
        program, command, *rest = service["command"]
        assert (program, command) == ("slackwater", "gateway")
        given = parsed(command, rest)
        assert given["listen"] == f"0.0.0.0:{port.rpartition(':')[2]}"
        assert (given["tokens"], given["no_tokens"]) == (file, file is None)


def test_the_notifier_keeps_what_receivers_have_got_and_has_their_addresses_as_settings() -> None:
    service = SERVICES["notifier"]
    program, command, *rest = service["command"]
    assert (program, command) == ("slackwater", "notify")
    assert parsed(command, rest)["data_dir_"] == Path("/data")
    assert "notifier:/data" in service["volumes"]
    assert service["profiles"] == ["notify"], "it refuses to run without a receiver"
    for name in ("ALERTMANAGER_URL", "WEBHOOK_URL"):
        given = f"SLACKWATER_{name}"
        assert service["environment"][given] == f"${{{given}:-}}"
    assert service["environment"]["SLACKWATER_WEBHOOK_TOKEN_FILE"] == "/token"


@pytest.mark.parametrize("file", ["deployment.yaml", "cluster-deployment.yaml"])
def test_the_sensors_send_to_streams_what_was_measured(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node takes streams with a topic; all but lab, which is the user's, have a sensor."""
    monkeypatch.setattr(send, "VALUES_MAX", 100)
    streams = load_deployment(COMPOSE / file).streams
    assert all(stream.topic for stream in streams.values())
    sending = {name: each for name, each in SERVICES.items() if name.startswith("room-")}
    assert streams.keys() == sending.keys() | {"lab"}
    for name, service in sending.items():
        program, command, *rest = service["command"]
        assert (program, command) == ("slackwater", "send")
        given = parsed(command, rest)
        assert given["stream"] == name
        (folder,) = {v.split(":")[0] for v in service["volumes"] if ":/sensors:" in v}
        values = COMPOSE / folder / given["values"].relative_to("/sensors")
        assert send.read_values(streams[name], values)["temperature"]
        every_us = parse_duration_us(given["every"])
        expected_us = streams[name].expect_every_us
        assert expected_us is not None
        assert every_us * 2 < expected_us, "one reading that is late is none that is missing"
        assert service["scale"] == "${SLACKWATER_SENSORS:-1}"


@pytest.mark.parametrize(("stack", "name"), EACH)
def test_a_service_is_kept_in_bounds(stack: str, name: str) -> None:
    service = STACKS[stack][name]
    ours = re.match(r"\$\{SLACKWATER_(SERVICES|NODE)", service["image"])

    assert "container_name" not in service
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    # The project's images contain a health check; all others have one here.
    assert name in ONE_SHOT or (ours and name not in SPARK) or "test" in service["healthcheck"]
    assert service["logging"]["options"]["max-size"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"cap_add", "privileged", "user", "network_mode", "pid"}
    # Kafka writes its configuration beside its program.
    assert service.get("read_only", False) != name.startswith("kafka-")
    if ours:
        assert service["init"]


def test_no_login_is_possible_with_a_public_password() -> None:
    grafana = SERVICES["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    for name, service in SERVICES.items():
        given = [key for key in service.get("environment", {}) if "PASSWORD" in key.upper()]
        assert not given, name


def properties_of_the_script() -> dict[str, str]:
    """Return the security settings of the image's master and workers."""
    text = (COMPOSE / "images/spark/spark").read_text()
    lines = text.partition("<<END\n")[2].partition("\nEND\n")[0].splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_the_spark_cluster_asks_for_its_secret() -> None:
    """Master, workers and drivers have the same settings, and one secret that is generated once."""
    reported = properties_of_the_script()
    assert CLUSTER_SECURITY.items() <= reported.items()
    assert reported["spark.authenticate.secret"] == "$secret"
    assert reported["spark.master.rest.enabled"] == "false", "that port has no authentication"
    volume = "${SLACKWATER_SPARK_SECRET:-spark-secret}:/secret"
    assert SERVICES["spark-secret"]["volumes"] == [volume]
    assert "spark-secret" in STACK["volumes"]
    for name in SPARK:
        service = SERVICES[name]
        assert f"{volume}:ro" in service["volumes"]
        assert service["environment"]["SPARK_SECRET_FILE"] == "/secret/spark"
        ended = service["depends_on"]["spark-secret"]["condition"]
        assert ended == "service_completed_successfully"
    assert f"{volume.removesuffix('secret')}spark:ro" in SERVICES["node"]["volumes"]
    assert "--spark-secret-file=/spark/spark" in SERVICES["node"]["command"]


@pytest.mark.parametrize(("name", "file"), [("spark-secret", "spark"), ("secret", "controllers")])
def test_a_secret_is_made_once_and_for_its_owner(tmp_path: Path, name: str, file: str) -> None:
    *shell, script = SERVICES[name]["command"]
    script = script.replace("/secret", str(tmp_path))
    for _ in range(2):
        subprocess.run([*shell, script], check=True)
    made = tmp_path / file
    kept = made.read_text()
    subprocess.run([*shell, script], check=True)
    assert made.read_text() == kept
    assert len(kept) >= SECRET_CHARS_MIN
    assert (made.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o600, [made])


SECURED: dict[str, dict[str, Any]] = load(COMPOSE / "secured.yaml")["services"]
ROLE_OF = {
    "topics": "admin",
    "node": "node",
    "spark-worker-1": "worker",
    "spark-worker-2": "worker",
    "exporter": "exporter",
    "gateway": "gateway",
    "notifier": "notifier",
    **dict.fromkeys(("room-1", "room-2", "room-3", "room-4"), "sensor"),
}
"""The folder with the credentials of each service that uses Kafka."""
WITHOUT_KAFKA = {"secret", "controller", "apply", "spark-secret", "spark-master"}
MAKES_SECRETS = {"secrets", "rights"}


def test_every_service_of_the_secured_stack_has_the_credentials_that_it_needs() -> None:
    ours = {
        name
        for name, service in SERVICES.items()
        if "SERVICES" in service["image"] or "NODE" in service["image"]
    }
    assert ours == ROLE_OF.keys() | WITHOUT_KAFKA
    for name, role in ROLE_OF.items():
        assert SECURED[name]["volumes"] == [f"secured-{role}:/kafka:ro"], name
        # Executors are told their file by the driver.
        file = {"sensor": f"/kafka/{PRODUCER}.properties", "worker": None}.get(role, "/kafka")
        environment = SECURED[name].get("environment", {})
        assert environment.get("SLACKWATER_KAFKA_CONFIG") == file, name
    known = ROLE_OF.keys() | MAKES_SECRETS
    assert {name for name in SECURED if name not in known} == {"kafka-1", "kafka-2", "kafka-3"}


@pytest.mark.parametrize("name", ["kafka-1", "kafka-2", "kafka-3"])
def test_a_broker_of_the_secured_stack_lets_nobody_in_by_default(name: str) -> None:
    service = SECURED[name]
    settings = SERVICES[name]["environment"] | service["environment"]
    listeners = [each.partition("://")[0] for each in settings["KAFKA_LISTENERS"].split(",")]
    protocols = dict(
        each.split(":") for each in settings["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    assert protocols.keys() == set(listeners)
    assert {protocols["HOST"], protocols["INSIDE"]} == {"SASL_SSL"}
    for listener in ("BROKER", "CONTROLLER"):
        assert protocols[listener] == "SSL"
        assert settings[f"KAFKA_LISTENER_NAME_{listener}_SSL_CLIENT_AUTH"] == "required"
    assert settings["KAFKA_INTER_BROKER_LISTENER_NAME"] == "BROKER"
    assert settings["KAFKA_AUTHORIZER_CLASS_NAME"].endswith(".StandardAuthorizer")
    assert settings["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false"
    assert settings["KAFKA_SUPER_USERS"] == f"User:CN={BROKER}"
    advertised = dict(
        each.split("://") for each in settings["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    assert advertised["INSIDE"] == f"{name}:19092"
    assert advertised["BROKER"] == f"{name}:19093"
    plain = dict(
        each.split("://")
        for each in SERVICES[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    assert advertised["HOST"] == plain["HOST"], "where external programs look for it"
    assert service["volumes"] == ["secured-broker:/made/broker:ro"]
    ended = service["depends_on"]["secrets"]["condition"]
    assert ended == "service_completed_successfully"


def test_secrets_are_made_by_services_that_are_kept_in_bounds() -> None:
    for name in MAKES_SECRETS:
        service = SECURED[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"]
        assert service["restart"] == "no"
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
        assert not service.keys() & {"cap_add", "privileged", "user", "ports"}
    assert SECURED["secrets"]["network_mode"] == "none"
    folders = {volume.split(":")[1] for volume in SECURED["secrets"]["volumes"]}
    assert folders == {f"/made/{place}" for place in (*INSIDE, OUTSIDE, "broker")}
    text = (COMPOSE / "images/services/Dockerfile").read_text()
    made = re.search(r"for place in (.+); do", text)
    assert made is not None
    assert {f"/made/{place}" for place in made[1].split()} == folders, "owned by its writer"
    read_only = {
        volume.removesuffix(":ro")
        for volume in SECURED["rights"]["volumes"]
        if volume.endswith(":ro") and "/made/" in volume
    }
    assert read_only == set(SECURED["secrets"]["volumes"])


def test_no_password_is_written_in_what_starts_the_secured_stack() -> None:
    text = (COMPOSE / "secured.yaml").read_text()
    assert not re.findall(r"(?i)password\s*[=:]", text)
    assert not re.findall(r"(?i)\w*PASSWORD\w*", "".join(str(each) for each in SECURED.values()))


def run_pin_images(folder: Path, docker: str) -> tuple[int, str, str | None]:
    """Run with a replaced ``docker``; return the file that it wrote."""
    (folder / "docker").write_text(f"#!/bin/bash\n{docker}\n")
    (folder / "docker").chmod(0o755)
    out = folder / "pinned.env"
    ran = subprocess.run(
        [COMPOSE / "pin-images", out],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stderr, out.read_text() if out.exists() else None


def test_images_are_pinned_by_the_digests_of_their_registry(tmp_path: Path) -> None:
    digest = "sha256:" + "5" * 64
    code, _, written = run_pin_images(tmp_path, f'[[ $1 == buildx ]] && echo "{digest}"')
    assert code == 0
    assert written is not None
    pinned = dict(line.split("=", 1) for line in written.splitlines() if line[0] != "#")
    text = (COMPOSE / "compose.yaml").read_text()
    public = dict(re.findall(r"\$\{(\w+_IMAGE):-((?!slackwater/)[^}]+)\}", text))
    assert pinned == {name: f"{image}@{digest}" for name, image in public.items()}
    assert len(pinned) == 4


@pytest.mark.parametrize(
    "docker",
    [
        "exit 1",
        "echo no digest",
        'case $* in *grafana*) exit 1;; esac; echo "sha256:' + "5" * 64 + '"',
    ],
    ids=["no registry", "no digest", "one image less"],
)
def test_without_a_registry_no_image_is_pinned(tmp_path: Path, docker: str) -> None:
    (tmp_path / "pinned.env").write_text("as it was\n")
    code, reported, written = run_pin_images(tmp_path, docker)
    assert (code, written) == (3, "as it was\n")
    assert "no registry" in reported
    assert "nothing is changed" in reported


def test_every_variable_is_explained_with_its_default() -> None:
    text = "".join(path.read_text() for path in sorted(COMPOSE.glob("*.yaml")))
    text += (COMPOSE / "images/healthy").read_text()
    defaults = set(re.findall(r"\$\{(SLACKWATER_\w+):-([^}]*)\}", text))
    used = set(re.findall(r"(?<!\$)\$\{(SLACKWATER_\w+)", text)) - {"SLACKWATER_HEALTH_FILE"}
    example = (COMPOSE / ".env.example").read_text()
    explained = dict(re.findall(r"^#(SLACKWATER_\w+)=(.*)$", example, re.MULTILINE))

    assert used - set(explained) == set()
    for name in ("nodes", "sites"):
        defaults -= {("SLACKWATER_PROJECT", f"slackwater-{name}")}  # in a comment
    assert defaults <= set(explained.items())


def metrics() -> set[str]:
    """Return the exporter's metrics, without the suffixes that a scrape adds."""
    registry = CollectorRegistry()
    ResultMetrics(registry, load_deployment(COMPOSE / "deployment.yaml"))
    found = [*registry.collect(), *heartbeat_metrics({}, {}, 0), *controller_metrics(None)]
    return {metric.name for metric in found}


def asked_for(expression: str) -> set[str]:
    """Return the project's metrics in a PromQL expression."""
    found = re.findall(r"slackwater_\w+", expression)
    return {re.sub(r"_(total|bucket|count|sum)$", "", metric) for metric in found}


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """Return the queries of its panels."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


ALERTS = load(COMPOSE / "observe/alerts.yml")
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_existing_metrics_and_has_a_remedy(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    named = asked_for(rule["expr"])
    assert named <= metrics()
    assert named or rule["expr"].startswith("up{"), "it must have a query"
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    labels = {"query", "process", "instance", "node", "controller", "stream", "change", "receiver"}
    assert used <= labels


def test_prometheus_loads_the_alerts_that_are_mounted() -> None:
    prometheus = load(COMPOSE / "observe/prometheus.yml")
    assert prometheus["rule_files"] == ["alerts.yml"]
    mounted = [volume.partition(":")[0] for volume in SERVICES["prometheus"]["volumes"]]
    assert "./observe/alerts.yml" in mounted
    jobs = {each["job_name"] for each in prometheus["scrape_configs"]}
    asked = {job for rule in RULES for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert asked <= jobs


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((COMPOSE / "observe/grafana/dashboards/slackwater.json").read_text())
    asked = {metric for expression in expressions(dashboard) for metric in asked_for(expression)}

    assert asked == metrics()


def promtool(*arguments: object) -> None:
    """Run Prometheus' own check of its files."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not here: apt-get install prometheus, or unpack a release")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_its_configuration_and_the_rules() -> None:
    promtool("check", "config", COMPOSE / "observe/prometheus.yml")


def test_each_alert_is_raised_when_it_should_be_and_not_else() -> None:
    tests = load(COMPOSE / "observe/alerts-test.yml")["tests"]
    tested = set(re.findall(r'alertname="(\w+)"', str(tests)))
    assert tested == {rule["alert"] for rule in RULES}
    promtool("test", "rules", COMPOSE / "observe/alerts-test.yml")


def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    dashboard = json.loads((COMPOSE / "observe/grafana/dashboards/slackwater.json").read_text())
    asked = [expression.replace("$query", ".*") for expression in expressions(dashboard)]
    # Without any series each of them has an empty result, if it can be parsed.
    checks = [{"expr": each, "eval_time": "1m", "exp_samples": []} for each in asked]
    series = [{"series": "nothing", "values": "0x20"}]
    test = {"interval": "5s", "input_series": series, "promql_expr_test": checks}
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": [], "tests": [test]}))
    promtool("test", "rules", tmp_path / "test.json")


def test_the_dashboard_has_the_data_source_that_is_provided() -> None:
    dashboard = json.loads((COMPOSE / "observe/grafana/dashboards/slackwater.json").read_text())
    (source,) = load(COMPOSE / "observe/grafana/datasources/prometheus.yml")["datasources"]
    named = [*dashboard["panels"], *dashboard["templating"]["list"]]
    assert {each["datasource"]["uid"] for each in named} == {source["uid"]}
    (mounted,) = [v for v in SERVICES["grafana"]["volumes"] if v.startswith("./observe/grafana")]
    folder = mounted.split(":")[1]
    (provider,) = load(COMPOSE / "observe/grafana/dashboards/slackwater.yml")["providers"]
    assert provider["options"]["path"] == f"{folder}/dashboards"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/dashboards/slackwater.json"
    assert source["url"].startswith("http://prometheus:")


@pytest.mark.parametrize("path", sorted(COMPOSE.rglob("*.yml")), ids=str)
def test_the_provisioning_is_yaml(path: Path) -> None:
    assert load(path)
