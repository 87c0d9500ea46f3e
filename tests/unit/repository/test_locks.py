"""Installed packages are those of the locks; another jar is refused."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
LOCKS = ROOT / "locks"
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(path: Path) -> dict[str, str]:
    found = (ENTRY.match(line) for line in path.read_text().splitlines())
    return {plain(entry[1]): entry[2] for entry in found if entry}


def entries(path: Path) -> list[str]:
    """Return each package with its hashes, as pip reads it."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    return [entry for entry in "\n".join(lines).replace("\\\n", " ").splitlines() if entry.strip()]


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    constraints, lock = pinned(ROOT / "constraints.txt"), pinned(LOCKS / "python.txt")
    assert {name: lock.get(name) for name in constraints} == constraints


@pytest.mark.parametrize("name", ["python.txt", "build.txt"])
def test_every_package_has_hashes(name: str) -> None:
    found = entries(LOCKS / name)
    assert len(found) == len(pinned(LOCKS / name)) > 0
    for entry in found:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_lock_names_what_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {plain(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in declared}
    assert names <= pinned(LOCKS / "python.txt").keys()


def test_the_lock_of_the_browser_names_what_is_declared_and_has_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [Requirement(line).name for line in project["optional-dependencies"]["browser"]]
    assert {*map(plain, declared)} <= pinned(LOCKS / "browser.txt").keys()
    for entry in entries(LOCKS / "browser.txt"):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_lock_of_the_documentation_names_what_is_declared_and_setup_does_not_install_it() -> (
    None
):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {plain(Requirement(line).name) for line in project["optional-dependencies"]["docs"]}
    assert names <= pinned(LOCKS / "docs.txt").keys()
    assert not names & pinned(LOCKS / "python.txt").keys()
    for entry in entries(LOCKS / "docs.txt"):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    (rule,) = re.findall(
        r"^\$\(DOCS_STAMP\):(.*?)\n\n", (ROOT / "Makefile").read_text(), re.DOTALL | re.MULTILINE
    )
    assert rule.split()[0] == "locks/docs.txt"
    assert "--require-hashes" in rule


@pytest.mark.parametrize("path", sorted(LOCKS.iterdir()), ids=lambda path: path.name)
def test_the_locks_name_no_address(path: Path) -> None:
    assert "://" not in path.read_text()


def test_setup_installs_nothing_else() -> None:
    makefile = (ROOT / "Makefile").read_text()
    wrapper = r"(?:locks/with-elapsed \"[^\"]*\" )?"
    installs = re.findall(rf"^\t@{wrapper}\$\(PIP\) (.*)$", makefile, re.MULTILINE)
    assert len(installs) == makefile.count("$(PIP)") == 3
    # The others are those of the documentation and of the browser's tests, in venvs of their own.
    others = re.findall(r"_VENV\)/bin/python -m pip install ([^\n]*)", makefile)
    assert len(others) == makefile.count("pip install") - 1 == 2
    assert all("--require-hashes" in install for install in others)
    for install in installs:
        assert "--require-hashes" in install or install.startswith("--no-deps ")
        assert "--no-build-isolation" in install or "locks/build.txt" in install


@pytest.mark.parametrize(
    ("present", "reported"), [((), "no java;"), (("java",), "no mvn; on Debian: apt-get install")]
)
def test_setup_names_what_is_absent_before_it_installs_packages(
    present: tuple[str, ...], reported: str, tmp_path: Path
) -> None:
    make, programs = shutil.which("make"), tmp_path / "bin"
    assert make is not None
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    for name in present:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    ran = subprocess.run(
        [make, "setup", "PYTHON=python3", f"VENV={tmp_path}/venv", f"JARS={tmp_path}/jars"],
        cwd=ROOT,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr.startswith(f"setup: {reported}")
    assert not (tmp_path / "venv").exists()


def check(folder: Path, jars: Path) -> tuple[int, str]:
    ran = subprocess.run(
        [LOCKS / "check-jars", folder, jars], capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    lines = []
    for name in ("a.jar", "b-2.jar"):
        (tmp_path / "jars" / name).write_text(name)
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (tmp_path / "list").write_text("".join(lines))
    return tmp_path


def test_the_jars_of_the_list_pass(folder: Path) -> None:
    assert check(folder / "jars", folder / "list") == (0, "")


@pytest.mark.parametrize("change", ["other", "more", "fewer"])
def test_any_other_jar_is_named(folder: Path, change: str) -> None:
    jars = folder / "jars"
    match change:
        case "other":
            (jars / "a.jar").write_text("A")
        case "more":
            shutil.copy(jars / "a.jar", jars / "c.jar")
        case "fewer":
            (jars / "a.jar").unlink()
    code, reported = check(jars, folder / "list")
    assert code == 1
    lines = {"other": ["found", "recorded"], "more": ["found"], "fewer": ["recorded"]}[change]
    jar = "c.jar" if change == "more" else "a.jar"
    assert [line.split()[0] for line in reported.splitlines() if jar in line] == lines
    assert "b-2.jar" not in reported
    assert "make lock" in reported


@pytest.mark.parametrize("image", ["services", "aggregator"])
def test_an_image_installs_all_that_its_packages_need(image: str) -> None:
    program = runpy.run_path(str(ROOT / "compose/images/requirements.py"))
    left_out = program["LEFT_OUT"][image]
    project, lock = ((ROOT / n).read_text() for n in ("pyproject.toml", "locks/python.txt"))
    taken: list[str] = program["requirements"](image, project, lock)
    names = {plain(entry.split("==", maxsplit=1)[0]) for entry in taken}
    assert all("--hash=sha256:" in entry for entry in taken)
    assert not names & left_out
    assert "pytest" not in names
    here = [Requirement(entry.partition("\\")[0]) for entry in taken]
    for package in (one for one in here if one.marker is None or one.marker.evaluate()):
        for line in importlib.metadata.requires(package.name) or []:
            needs = Requirement(line)
            if needs.marker is None or needs.marker.evaluate({"extra": ""}):
                assert plain(needs.name) in names | left_out, f"{package.name} needs {needs}"


PROCESSES = {
    "aggregator": ("slackwater_spark.app", "slackwater_spark.aggregate"),
    "services": tuple(f"slackwater.{name}.app" for name in ("proxy", "host", "exporter")),
}
IMPORTED_AS = {"faust-streaming": "faust", "mode-streaming": "mode"}


@pytest.mark.parametrize("image", PROCESSES)
def test_a_process_needs_nothing_that_its_image_leaves_out(image: str) -> None:
    left_out = runpy.run_path(str(ROOT / "compose/images/requirements.py"))["LEFT_OUT"][image]
    absent = [IMPORTED_AS.get(name, name.replace("-", "_")) for name in sorted(left_out)]
    lines = [f"sys.modules[{name!r}] = None" for name in absent]
    lines += [f"import {module}" for module in PROCESSES[image]]
    program = "\n".join(["import sys", *lines])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "code"), [(["true"], 0), (["sh", "-c", "echo done; exit 3"], 3)]
)
def test_a_long_step_prints_how_long_it_has_run(command: list[str], code: int) -> None:
    script = [str(LOCKS / "with-elapsed"), "a step", "sh", "-c"]
    with subprocess.Popen(
        [*script, f"head -c 1 >/dev/null; {shlex.join(command)}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "WITH_ELAPSED_EVERY_S": "0.02"},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert re.fullmatch(r"a step: \d+ s\n", process.stdout.readline())
        process.stdin.write("x")
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait() == code
    assert ("done" in rest) is (code == 3)
