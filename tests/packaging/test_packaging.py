"""What holds the package together: version, imports, pins, make targets, the Java finder."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import penstock
from penstock.errors import PenstockError

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PURE = [name for name in ("windows", "patterns", "control") if (PACKAGE / name).is_dir()]


def modules(folder: Path) -> list[str]:
    """Name every module below a folder of the package; running one (`__main__`) is not importing it."""
    files = (file.relative_to(PACKAGE.parent) for file in sorted(folder.rglob("*.py")) if file.name != "__main__.py")
    return [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]


def run_python(code: str) -> str:
    """Run code in an interpreter of its own: this one has long imported everything."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_is_the_one_in_pyproject() -> None:
    assert penstock.__version__ == PROJECT["project"]["version"]


def test_package_ships_its_types() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["penstock"]


def test_importing_every_module_starts_no_spark() -> None:
    names = modules(PACKAGE)
    assert "penstock.engine.spark.session" in names
    run_python(
        f"import importlib\nfor name in {names}: importlib.import_module(name)\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._gateway is None and SparkContext._active_spark_context is None, 'a JVM was started'\n"
    )


@pytest.mark.parametrize("layer", PURE)
def test_pure_layer_loads_no_pyspark(layer: str) -> None:
    loaded = run_python(
        f"import importlib, sys\nfor name in {modules(PACKAGE / layer)}: importlib.import_module(name)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'py4j'}))\n"
    )
    assert loaded.split() == [], f"importing penstock.{layer} also loads {loaded.strip()}"


@pytest.mark.parametrize("layer", PURE)
def test_pure_layer_is_under_contract(layer: str) -> None:
    forbidden = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "forbidden")
    assert f"penstock.{layer}" in forbidden["source_modules"]


def test_lock_names_no_place() -> None:
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert line.startswith("# Made by") or re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", line), line


def test_lock_satisfies_pyproject() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = {canonicalize_name(name): Version(pin) for name, _, pin in (line.partition("==") for line in lines) if pin}
    project = PROJECT["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"] + PROJECT["build-system"]["requires"]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), str(requirement)


def test_every_make_target_has_a_help_line() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines()} == set(phony.group(1).split())
    assert all(len(line.split()) > 1 for line in shown.splitlines())


@pytest.fixture
def ensure_java(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a machine without Java."""
    spec = importlib.util.spec_from_file_location("ensure_java", ROOT / "scripts" / "ensure_java.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def no_java() -> Path:
        raise PenstockError(script.ADVICE)

    monkeypatch.setattr(script, "java_home", no_java)
    monkeypatch.setattr(sys, "argv", ["ensure_java"])
    return script


def test_without_java_and_root_one_line_says_what_to_do(
    ensure_java: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ensure_java, "can_install", lambda: False)
    monkeypatch.setattr(ensure_java, "run", lambda command: pytest.fail(f"ran {command}"))
    assert ensure_java.main() == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "JAVA_HOME" in said.err


def test_root_on_debian_installs_java_and_falls_back(
    ensure_java: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def apt(command: list[str]) -> bool:
        ran.append(" ".join(command))
        if command[-1] == "default-jre-headless":  # this Debian is too new for 17
            monkeypatch.setattr(ensure_java, "java_home", lambda: Path("/jvm"))
        return command[-1] != "openjdk-17-jre-headless"

    monkeypatch.setattr(ensure_java, "can_install", lambda: True)
    monkeypatch.setattr(ensure_java, "run", apt)
    assert ensure_java.main() == 0
    assert ran == [
        "apt-get update",
        "apt-get install -y --no-install-recommends openjdk-17-jre-headless",
        "apt-get install -y --no-install-recommends default-jre-headless",
    ]
    assert capsys.readouterr().out.endswith("java: /jvm\n")
