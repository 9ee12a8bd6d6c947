"""One module holds the kernels for several instruction sets: it chooses among them, and keeps their code apart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from lowtide import kernels
from tests.kernels.cases import Case
from tests.kernels.driver import Session, Settings

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "lowtide" / "kernels"
ISAS = kernels.usable_isas()
COMPILER = os.environ.get("CXX", "c++")

needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which("nm") is None, reason="no C++ compiler or no nm here"
)


def ask(expression: str, isa: str) -> subprocess.CompletedProcess[str]:
    """Print an expression of this file in a process of its own, with LOWTIDE_ISA set."""
    command = [sys.executable, "-c", f"from tests.kernels.test_isa import *; print({expression})"]
    environment = os.environ | {"LOWTIDE_ISA": isa}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def padded_units(isa: str) -> int:
    """Elements of a kept cell state of one unit: how wide the kernels' vectors are."""
    return kernels.sizes(Session(Case("lstm", 1, 1, lengths=(1,)).problem(), Settings(isa)).describe(), isa)[0]


def test_the_widest_usable_instruction_set_comes_first_and_is_the_default() -> None:
    widths = [padded_units(isa) for isa in ISAS]
    assert widths == sorted(widths, reverse=True)
    if not os.environ.get("LOWTIDE_ISA"):
        assert kernels.isa() == ISAS[0]


@pytest.mark.parametrize("isa", ISAS)
def test_the_environment_variable_forces_an_instruction_set(isa: str) -> None:
    child = ask("kernels.isa()", isa)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == isa
    # and its code is what really runs
    child = ask("padded_units('')", isa)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == str(padded_units(isa))


def test_a_wrong_name_in_the_environment_gives_an_error_that_names_the_usable_ones() -> None:
    child = ask("kernels.isa()", "sse9")
    assert child.returncode == 1
    error = child.stderr
    assert "UnsupportedError" in error
    assert "LOWTIDE_ISA" in error
    assert "sse9" in error
    assert ", ".join(ISAS) in error


def test_a_wrong_name_in_a_call_is_an_error() -> None:
    session = Session(Case("gru").problem(), Settings())
    for act in (kernels.forward, kernels.backward, kernels.sizes):
        with pytest.raises(ValueError, match="sse9"):
            act(session.forward_call(), "sse9")
    assert (session.y.memory == session.y.memory[0, 0, 0]).all()


# ---- symbols ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """One `lowtide_isa(...)` line of CMakeLists.txt."""

    name: str
    vector_bytes: str
    registers: str
    flags: tuple[str, ...]


def targets() -> list[Target]:
    """Read what is built for this machine's family of processors."""
    text = (ROOT / "CMakeLists.txt").read_text()
    lines = re.findall(r"^\s*lowtide_isa\(([a-z]\w*) (\d+) (\d+)(.*)\)$", text, re.MULTILINE)
    known = [Target(name, width, registers, tuple(flags.split())) for name, width, registers, flags in lines]
    return [target for target in known if (target.name == "neon") == ("neon" in ISAS)]


def symbols(source: Path, folder: Path, *options: str) -> list[tuple[str, str]]:
    """Compile without optimisation, so that nothing inline disappears; give nm's letter and name of every symbol."""
    made = folder / "made.o"
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [COMPILER, "-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", *options]
    subprocess.run([*command, "-c", str(source), "-o", str(made)], env=plain, check=True)
    listed = subprocess.run(["nm", "-C", str(made)], env=plain, check=True, capture_output=True, text=True).stdout  # noqa: S607
    found = re.findall(r"^[0-9a-f ]{16} (\w) (.+)$", listed, re.MULTILINE)
    assert len(found) == len(listed.splitlines())
    return found


def shared(found: list[tuple[str, str]], *, table: str) -> list[str]:
    """Name what the linker might share with code for other machines, or that comes from elsewhere without need."""
    from_elsewhere = re.compile(r"lowtide::\w+\(.*\)|mem(cpy|set|move)|_GLOBAL_OFFSET_TABLE_")
    local = set("tbdrn")  # n: sections' own symbols
    defined = [name for letter, name in found if letter != "U" and letter not in local and name != table]
    return defined + [name for letter, name in found if letter == "U" and not from_elsewhere.fullmatch(name)]


@needs_compiler
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_code_for_an_instruction_set_shares_no_symbol_but_its_table(target: Target, tmp_path: Path) -> None:
    definitions = f"ISA={target.name}", f"VECTOR_BYTES={target.vector_bytes}", f"REGISTERS={target.registers}"
    options = [*target.flags, *(f"-DLOWTIDE_{definition}" for definition in definitions)]
    found = symbols(SOURCES / "isa.cpp", tmp_path, *options)
    table = f"lowtide::kernels_{target.name}"
    assert [letter for letter, name in found if name == table] in (["D"], ["R"])
    assert shared(found, table=table) == []


@needs_compiler
def test_an_inline_function_of_the_standard_library_would_be_noticed(tmp_path: Path) -> None:
    source = tmp_path / "inline.cpp"
    source.write_text("#include <algorithm>\nint larger(int a, int b) { return std::max(a, b); }\n")
    noticed = shared(symbols(source, tmp_path), table="larger(int, int)")
    assert [name for name in noticed if "std::max" in name]


def test_every_usable_instruction_set_is_among_those_looked_at() -> None:
    assert {target.name for target in targets()} >= set(ISAS)
