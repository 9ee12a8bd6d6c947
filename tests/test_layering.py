"""A part of Lowtide imports only from the parts below it, and `import lowtide` brings no framework."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lowtide

SOURCE = Path(__file__).resolve().parent.parent / "src" / "lowtide"
PARTS = ["kernels", "memory", "data", "ops", "nn", "step", "planning", "train", "keras", "cli"]
"""From the bottom up: a part may import from those to its left."""
FOR_ALL = {"errors"}


def modules_imported(tree: ast.AST, package: list[str]) -> set[str]:
    """Every absolute module name that a file imports, also inside functions and under TYPE_CHECKING.

    Args:
        tree: The file's syntax tree.
        package: The names of the package that the file lies in, for relative imports.
    """
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from lowtide import ops` names a part, `from lowtide.ops import Cell` does not: both forms are kept.
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def parts_imported(source: str, package: list[str]) -> set[str]:
    """The direct children of `lowtide` that a file imports from; '' where it imports `lowtide` itself."""
    split = [name.split(".") for name in modules_imported(ast.parse(source), package)]
    return {name[1] if len(name) > 1 else "" for name in split if name[0] == "lowtide"}


def violations(part: str, imported: set[str]) -> set[str]:
    """What a part may not import: parts above it, and the public names, which know all parts."""
    return imported - FOR_ALL - set(PARTS[: PARTS.index(part) + 1])


def test_every_part_imports_only_from_below() -> None:
    wrong = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = ["lowtide", *path.relative_to(SOURCE).parts[:-1]]
        if len(package) == 1:
            continue  # the public names
        found = violations(package[1], parts_imported(path.read_text(encoding="utf-8"), package))
        if found:
            wrong[str(path.relative_to(SOURCE))] = sorted(found)
    assert not wrong, f"a lower part leans on a higher one: {wrong}"


def test_every_folder_has_a_place_in_the_order() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.glob("*/*.py")}
    assert folders <= set(PARTS)
    assert {"memory"} <= folders


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import lowtide.nn.lstm", {"nn"}),
        ("from lowtide.nn import LSTM", {"nn"}),
        ("from lowtide import nn", {"nn"}),
        ("from lowtide import lean", {"lean"}),
        ("import lowtide", {""}),
        ("from ..nn import LSTM", {"nn"}),
        ("from .. import nn", {"nn"}),
        ("def f():\n    from lowtide.train import Trainer", {"train"}),
        ("if TYPE_CHECKING:\n    from lowtide.step import StreamStep", {"step"}),
        ("from . import spec", set()),
        ("from lowtide.ops import Cell\nfrom lowtide.kernels import run", set()),
        ("from lowtide.errors import LowtideError\nimport torch", set()),
    ],
)
def test_a_wrong_import_is_seen_in_every_form(line: str, found: set[str]) -> None:
    assert violations("ops", parts_imported(line, ["lowtide", "ops"])) == found


@pytest.mark.parametrize(
    "statement", ["import lowtide", "import lowtide.memory", "import lowtide; lowtide.memory; dir(lowtide)"]
)
def test_no_framework_is_loaded_before_it_is_used(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(sorted({{'torch', 'tensorflow', 'numpy'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["lean", "stock", "nn"])
def test_without_torch_the_command_that_installs_it_is_named(name: str) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"  # makes `import torch` fail as if it were not installed
        "import lowtide\n"
        f"try:\n    lowtide.{name}\n"
        "except lowtide.LowtideError as error:\n    print(type(error).__name__, error.fix)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == 'MissingExtraError pip install "lowtide[torch]"'


def test_public_names_are_listed_before_they_are_loaded() -> None:
    assert set(lowtide.__all__) <= set(dir(lowtide))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'leen'"):
        _ = lowtide.leen
