"""Names of a deployment's objects in Kafka, with a prefix and without."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.cli.common import find_names
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.names import (
    PREFIX_CHARS_MAX,
    RESULT_KINDS,
    TOPIC_CHARS_MAX,
    Names,
    OrdererName,
    RootName,
    base_of,
    earlier_generations,
    generation_name,
    generation_of,
    is_orderer_of,
    latest_generation,
    why_no_prefix,
)
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.topics import QueryTopics, topics_for
from slackwater.runtime.service.datadir import DataDirectory, keep_prefix, read_run
from slackwater.runtime.service.settings import settings

PLANT = Names("plant-7.")
LONGEST = "q" * 63
"""The maximum length of a stream's or a query's name."""


def all_names(names: Names, stream: str, query: str) -> set[str]:
    return {
        names.source(stream),
        names.quarantine(stream),
        names.ordered(query, 0),
        names.deltas(query, 0),
        names.state(query),
        names.merged(query, 0),
        names.panes(query),
        *(names.results(query, kind) for kind in RESULT_KINDS),
        names.heartbeats,
        names.registry,
    }


def test_generations_of_a_query_share_results_states_and_fence_and_nothing_else() -> None:
    both = all_names(Names(), "room-1", "climate"), all_names(Names(), "room-1", "climate.g2")
    own = {"sw.ordered.climate.g2.0", "sw.deltas.climate.g2.0", "sw.panes.climate.g2"}
    own.add("sw.merged.climate.g2.0")
    assert both[1] - both[0] == own
    assert Names().transactional_id("climate.g2", 1) == "sw.climate.1"
    assert OrdererName.parse("climate.g2.0.b") == OrdererName("climate.g2", 0, 1)
    assert RootName.parse("climate.g2.3") == RootName("climate.g2", 3)
    assert is_orderer_of("orderer/climate.g2.0.b", "climate.g2")
    assert not is_orderer_of("orderer/climate.g2.0.b", "climate")
    assert not is_orderer_of("root/climate.0", "climate")


@given(st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True), st.integers(0, 10**9 - 1))
def test_the_name_of_a_generation_is_read_back(query: str, generation: int) -> None:
    name = generation_name(query, generation)
    assert (base_of(name), generation_of(name)) == (query, generation)


def test_generations_are_ordered_by_number() -> None:
    there = ["climate.g10", "climate", "climate.g9", "climates.g11"]
    assert earlier_generations("climate.g10", there) == ["climate.g9", "climate"]
    assert earlier_generations("climate", there) == []
    assert latest_generation("climate", there) == "climate.g10"
    assert latest_generation("on", there) is None


def test_without_a_prefix_the_names_are_those_of_running_deployments() -> None:
    assert all_names(Names(), "room-1", "climate") == {
        "sw.source.room-1",
        "sw.quarantine.room-1",
        "sw.ordered.climate.0",
        "sw.deltas.climate.0",
        "sw.state.climate",
        "sw.merged.climate.0",
        "sw.panes.climate",
        "sw.results.climate.stable",
        "sw.results.climate.tentative",
        "sw.results.climate.corrections",
        "sw.heartbeats",
        "sw.registry",
    }
    assert Names().transactional_id("climate", 2) == "sw.climate.2"
    assert Names().group("aggregator/climate.0.a") == "sw-aggregator-climate.0.a"
    assert Names().assigned_group == "slackwater-assigned"


def test_a_prefix_stands_before_all_of_them() -> None:
    bare = all_names(Names(), "room-1", "climate")
    assert all_names(PLANT, "room-1", "climate") == {"plant-7." + name for name in bare}
    assert PLANT.transactional_id("climate", 2) == "plant-7.sw.climate.2"
    assert PLANT.group("aggregator/climate.0") == "plant-7.sw-aggregator-climate.0"
    assert PLANT.assigned_group == "plant-7.slackwater-assigned"


def test_the_topics_that_are_made_are_those_that_are_asked_for() -> None:
    made = {
        spec.name for spec in topics_for(["room-1"], [QueryTopics("climate", merging=True)], PLANT)
    }
    assert made == all_names(PLANT, "room-1", "climate")
    assert all(map(PLANT.is_ours, made))
    assert not any(map(Names().is_ours, made))


@given(st.text(alphabet="aZ0._-/ \u00e9", min_size=1, max_size=PREFIX_CHARS_MAX + 1))
def test_whatever_is_allowed_makes_legal_topics(prefix: str) -> None:
    if why_no_prefix(prefix) is not None:
        with pytest.raises(ValueError, match="prefix"):
            Names(prefix)
        return
    for name in all_names(Names(prefix), f"{LONGEST}.1000000", LONGEST):
        assert len(name) < TOPIC_CHARS_MAX
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzZ0123456789._-")


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("plant-7", "and end with"),
        ("plant 7.", "letters, digits"),
        ("plänt.", "ASCII"),
        (".", "begin with"),
        ("__internal.", "begin with"),
        ("sw.", "without a prefix"),
        ("sw.source.", "without a prefix"),
        ("p" * PREFIX_CHARS_MAX + ".", "too many"),
    ],
)
def test_what_is_no_prefix(prefix: str, why: str) -> None:
    assert why in (why_no_prefix(prefix) or "")


FILE = """
apiVersion: slackwater/v1
clock: wall
prefix: plant-7.
streams:
  room-1: {key: {column: node}, time: {column: ts, unit: ms}, fields: [temperature]}
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    expect_every: 5s
queries:
  climate: {from: [room-1, lab], window: {size: 1m}, aggregate: [count], bound: 2s}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "deployment.yaml"
    path.write_text(text)
    return path


def test_a_deployment_file_gives_the_prefix(tmp_path: Path) -> None:
    deployment = load_deployment(written(tmp_path, FILE))
    assert deployment.names == PLANT
    topic = deployment.streams["lab"].topic
    assert topic is not None
    assert topic.name == "lab-readings", "a stream's own topic belongs to the user"
    specs = topic_specs(deployment, {"lab": 2})
    assert len(specs) == 14
    assert all(PLANT.is_ours(spec.name) for spec in specs)
    bare = load_deployment(written(tmp_path, FILE.replace("prefix: plant-7.\n", "")))
    assert bare == dataclasses.replace(deployment, names=Names())


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("prefix: plant-7", "4: prefix: 'plant-7' is not a valid prefix"),
        ("prefix: [plant-7.]", "4: prefix: must be text"),
        ("prefix: sw.", "4: prefix: 'sw.' is not a valid prefix"),
    ],
)
def test_a_wrong_prefix_is_reported_with_its_line(tmp_path: Path, line: str, reported: str) -> None:
    with pytest.raises(Exception, match=r"deployment\.yaml") as raised:
        load_deployment(written(tmp_path, FILE.replace("prefix: plant-7.", line)))
    assert reported in str(raised.value)


def test_an_own_topic_is_no_input_whatever_the_prefix(tmp_path: Path) -> None:
    for own in ("sw.results.q.stable", "plant-7.sw.results.q.stable"):
        with pytest.raises(Exception, match="one of slackwater's own topics"):
            load_deployment(written(tmp_path, FILE.replace("lab-readings", own)))
    other = FILE.replace("lab-readings", "plant-7.readings")
    assert load_deployment(written(tmp_path, other)).streams["lab"].topic is not None


# Where it is stored, and where a command finds it.


def test_a_data_directory_keeps_its_prefix(tmp_path: Path) -> None:
    keep_prefix(tmp_path / "new", PLANT)
    keep_prefix(tmp_path / "new", PLANT)
    with pytest.raises(DeploymentError) as raised:
        keep_prefix(tmp_path / "new", Names())
    assert str(raised.value) == (
        f"{tmp_path / 'new'} holds a deployment with prefix plant-7., but the file has no prefix:"
        " choose another --data-dir, or restore the prefix in the file"
    )
    with pytest.raises(DeploymentError, match="but the file has prefix other-"):
        keep_prefix(tmp_path / "new", Names("other-"))


@pytest.mark.parametrize("of_old", ["run.json", "proxy"])
def test_a_directory_from_before_prefixes_has_none(tmp_path: Path, of_old: str) -> None:
    (tmp_path / of_old).mkdir()
    with pytest.raises(DeploymentError, match="holds a deployment with no prefix"):
        keep_prefix(tmp_path, PLANT)
    keep_prefix(tmp_path, Names())
    keep_prefix(tmp_path, Names())


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("BOOTSTRAP", "DATA_DIR", "PREFIX"):
        monkeypatch.delenv(f"SLACKWATER_{name}", raising=False)
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()


def run_json(folder: Path, **changed: object) -> None:
    emitted = {"bootstrap": "h:1", "deployment": "d.yaml", "prefix": "plant-7."} | changed
    (folder / "run.json").write_text(json.dumps(emitted))


@pytest.mark.usefixtures("environment")
def test_a_command_finds_the_prefix_of_the_deployment_it_looks_at(tmp_path: Path) -> None:
    run_json(tmp_path)
    assert find_names(None, None, tmp_path) == PLANT
    assert find_names(None, "h:1", tmp_path) == PLANT
    assert find_names(None, "another:2", tmp_path) == Names(), "run.json is of another broker"
    assert find_names("b-", None, tmp_path) == Names("b-")
    assert find_names("", None, tmp_path) == Names(), "said to without a prefix"
    run_json(tmp_path, prefix="")
    assert find_names(None, None, tmp_path) == Names()
    (tmp_path / "run.json").write_text(json.dumps({"bootstrap": "h:1", "deployment": "d.yaml"}))
    assert find_names(None, None, tmp_path) == Names(), "of an earlier version"


def test_a_variable_names_it_too(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_json(tmp_path)
    environment.setenv("SLACKWATER_PREFIX", "env-")
    settings.cache_clear()
    assert find_names(None, None, tmp_path) == Names("env-")
    assert find_names("b-", None, tmp_path) == Names("b-")
    environment.setenv("SLACKWATER_PREFIX", "env")
    settings.cache_clear()
    with pytest.raises(UsageError, match="SLACKWATER_PREFIX: 'env' is not a valid prefix"):
        find_names(None, None, tmp_path)
    with pytest.raises(UsageError, match="--prefix: 'b' is not a valid prefix"):
        find_names("b", None, tmp_path)


@pytest.mark.usefixtures("environment")
def test_a_run_json_with_a_wrong_prefix_is_reported(tmp_path: Path) -> None:
    run_json(tmp_path, prefix="plant 7")
    with pytest.raises(EnvironmentProblem, match="plant 7"):
        find_names(None, None, tmp_path)


def test_run_json_has_the_prefix(tmp_path: Path) -> None:
    DataDirectory(tmp_path).write_run("h:1", tmp_path / "d.yaml", {}, PLANT)
    run = read_run(tmp_path)
    assert run is not None
    assert run.names == PLANT


@given(st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True), st.integers(0, 99))
def test_a_fragment_is_what_its_name_says(query: str, number: int) -> None:
    orderer, root = OrdererName(query, number, number % 26), RootName(query, number)
    assert OrdererName.parse(str(orderer)) == orderer
    assert RootName.parse(str(root)) == root


def test_fragments_are_named_as_in_running_deployments() -> None:
    assert OrdererName("climate", 0, 1).process == "orderer/climate.0.b"
    assert RootName("climate", 12).process == "root/climate.12"


@pytest.mark.parametrize(
    "text", ["climate", "climate.0", "climate.a.0", "climate.0.ab", "climate.0.1", "climate.0.a.b"]
)
def test_an_orderers_name_has_a_query_a_child_and_a_letter(text: str) -> None:
    with pytest.raises(UsageError, match=r"QUERY\.CHILD\.REPLICA"):
        OrdererName.parse(text)


@pytest.mark.parametrize("text", ["climate", "climate.x", ".0", "climate.0.aa", "climate.0.A"])
def test_a_roots_name_has_a_query_and_a_part(text: str) -> None:
    with pytest.raises(UsageError, match=r"QUERY\.PART"):
        RootName.parse(text)
