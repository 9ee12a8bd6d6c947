"""What pyproject.toml, constraints.txt and the package say about versions agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lowtide
from tools.requirements import requirements

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_requirement_is_pinned_inside_its_range() -> None:
    stated = [*requirements(["torch", "text", "dev", "test"]), *PROJECT["build-system"]["requires"]]
    for requirement in map(Requirement, stated):
        assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)]), str(requirement)


def test_pins_carry_no_local_label_so_that_any_build_of_torch_satisfies_them() -> None:
    assert pins()["torch"] == "2.13.0"
    assert all(re.fullmatch(r"[0-9.]+", version) for version in pins().values())


def test_the_base_requires_no_framework() -> None:
    names = {Requirement(line).name for line in requirements([])}
    assert not names & {"torch", "tensorflow", "tensorflow-cpu", "keras", "jax"}


def test_the_version_is_the_same_everywhere() -> None:
    assert lowtide.__version__ == PROJECT["project"]["version"]
