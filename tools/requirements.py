"""Prints what Lowtide needs, one requirement a line, as pyproject.toml states it: the base and the extras named.

The Makefile installs these before it builds Lowtide itself, so that a change of a source never touches them.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def distribution(requirement: str) -> str:
    """The name in front of a requirement's version range."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return name[0]


def requirements(extras: list[str], without: list[str]) -> list[str]:
    """The base requirements and those of `extras`, less the distributions in `without`."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [requirement for requirement in wanted if distribution(requirement) not in without]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml")
    parser.add_argument("--without", action="append", default=[], help="a distribution to leave out")
    arguments = parser.parse_args()
    print("\n".join(requirements(arguments.extras, arguments.without)))
