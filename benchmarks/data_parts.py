"""The parts of `benchmarks.data`: what each asks its children, and the figures that follow. Loads no framework."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.report import MEGABYTE
from benchmarks.task import ask_child

_BESIDE = {"grouped": "the same with batches by length", "nested": "the same with lists of steps, not flat"}
"""Contestants that are shown and not asked for."""
MODULE = "benchmarks.data"
PEER_FORMATS = ("torch", "numpy")
PEER_WORKERS = (0, 2, 4)
INGEST_MEMORY = 400 << 20
"""What `lowtide.ingest` may add unless told otherwise: given to DuckDB alone as its memory limit."""


@dataclass(frozen=True)
class Sizes:
    """How much is made."""

    parquet: int = 2_000_000_000
    csv: int = 1_000_000_000
    sequences: int = 10_000_000
    lengths: int = 100_000
    loaded: int = 20_000
    points: int = 1000
    repeats: int = 2


QUICK = Sizes(200_000_000, 100_000_000, 1_000_000, 100_000, 5000, 100, 1)


def ask(act: str, **options: object) -> Any:  # noqa: ANN401 - each act has its own answer
    """Have a child of its own do something."""
    return ask_child(json.dumps({"act": act, "options": options}), {}, module=MODULE)


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder that goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="lowtide-data-") as folder:
        yield Path(folder)


def ingest(sizes: Sizes) -> list[Figure]:
    """Memory and rate of sorting shuffled rows into a store, beside DuckDB sorting them into a Parquet file."""
    figures = []
    for form, size in (("parquet", sizes.parquet), ("csv", sizes.csv)):
        with temporary() as folder:
            made = ask("make table", folder=str(folder / "table"), form=form, size=size)
            stores, peers = _sort_in_turns(folder, form, made["rows"], sizes.repeats)
        best = min(found["seconds"] for found in stores)
        peer = min(found["seconds"] for found in peers)
        megabytes, rows = made["bytes"] / MEGABYTE, made["rows"] / 1e6
        what = f"{form}, {megabytes / 1000:.1f} GB, {rows:.0f} million rows"
        detail = f"{best:.1f} s, {megabytes / best:.0f} MB/s, {rows / best:.2f} million rows/s; DuckDB {peer:.1f} s"
        figures += [
            Figure(
                f"{what}: growth of memory",
                max(found["growth"] for found in stores) / MEGABYTE,
                "MB",
                500,
                detail=f"DuckDB with the same limit {max(found['growth'] for found in peers) / MEGABYTE:.0f} MB",
            ),
            Figure(f"{what}: rate / DuckDB's", peer / best, "", 0.5, "at least", detail),
        ]
    return figures


def _sort_in_turns(folder: Path, form: str, rows: int, repeats: int) -> tuple[list[Any], list[Any]]:
    table, store, peer = (folder / name for name in ("table", "store", "peer"))
    stores, peers = [], []
    limits = {"memory_bytes": INGEST_MEMORY, "threads": len(os.sched_getaffinity(0))}
    for _ in range(repeats):
        stores.append(ask("ingest", folder=str(table), form=form, out=str(store)))
        assert stores[-1]["steps"] == rows, "rows were lost"
        shutil.rmtree(store)
        peers.append(ask("duckdb", folder=str(table), form=form, out=str(peer), **limits))
        shutil.rmtree(peer)
    return stores, peers


def open_store(sizes: Sizes) -> list[Figure]:
    """Opening a store of very many sequences, and going on late in an epoch of it."""
    with temporary() as folder:
        store = str(folder / "store")
        ask("make many", path=store, sequences=sizes.sequences)
        found = [ask("open", path=store) for _ in range(5)]
        batches = sizes.sequences // 64 // 2
        late = ask("late", path=store, batches=batches)
    best = min(found, key=lambda one: float(one["seconds"]))
    what = f"a store of {sizes.sequences / 1e6:g} million sequences"
    worst = max(1000 * one["seconds"] for one in found)
    use = min(1000 * one["use"] for one in found)
    growth, held = (max(one[name] for one in found) / MEGABYTE for name in ("growth", "held"))
    mapped = float(all(one["mapped"] for one in found))
    return [
        Figure(f"opening {what}", 1000 * best["seconds"], "ms", 50, detail=f"slowest of 5: {worst:.1f} ms"),
        Figure(
            "growth of resident memory by it, mapped pages included",
            growth,
            "MB",
            20,
            detail="beyond what importing takes",
        ),
        Figure("its lengths are mapped", mapped, "", 1, "at least", "1: yes"),
        Figure("growth of anonymous memory by a sequence and the sum of all lengths", held, "MB", 20),
        Figure("its first sequence read", use, "ms"),
        Figure(
            "going on in the middle of an epoch: from opening to the first batch",
            late,
            "s",
            1,
            detail=f"batch {batches}",
        ),
    ]


def padding(sizes: Sizes) -> list[Figure]:
    """Padding as a share of all steps, and how batches mix."""
    with temporary() as folder:
        store = str(folder / "store")
        ask("make lengths", path=store, sequences=sizes.lengths)
        found = ask("padding", path=store, batch_size=64, epochs=3)
    what = f"{sizes.lengths} log-normal lengths (sigma 1), batch 64"
    epochs = ", ".join(f"{100 * share:.2f}" for share in found["epochs"])
    return [
        Figure(f"{what}: padding", 100 * max(found["epochs"]), "%", 4, detail=f"epochs 0 to 2: {epochs}"),
        Figure("a full sort: padding", 100 * found["sorted"], "%", detail="the same batches in every epoch"),
        Figure("random batches: padding", 100 * found["random"], "%"),
        Figure(
            "of sequences that shared a batch, how many share the next epoch's",
            100 * max(found["together"]),
            "%",
            detail=f"by chance {100 * found['by_chance']:.2f} %",
        ),
    ]


def loading(sizes: Sizes) -> list[Figure]:
    """Valid steps a second on one core and memory, beside a DataLoader over Hugging Face `datasets`."""
    with temporary() as folder:
        paths = {"store": str(folder / "store"), "dataset": str(folder / "dataset")}
        ask("make loadable", **paths, sequences=sizes.loaded)
        rates = {one_core: _rates(paths, sizes.repeats, one_core=one_core) for one_core in (True, False)}
        held = {
            name: ask("load", **paths, contestant=contestant, workers=workers, epochs=0, one_core=False)
            for name, contestant, workers in _HELD
        }
    return [*_rate_figures(rates), *_memory_figures(held)]


_HELD = (
    ("loader", "lowtide", 0),
    ("workers", "lowtide workers", 4),
    ("peer", "torch", 4),
    ("peer alone", "torch", 0),
)
"""Whose memory is looked at: name, contestant and worker processes."""


def _rates(paths: dict[str, str], repeats: int, *, one_core: bool) -> dict[str, float]:
    """The best epoch of each contestant, in turns; the peer's configurations each by its name."""
    peers = [(form, workers) for form in PEER_FORMATS for workers in PEER_WORKERS]
    contestants = [("lowtide", 0), *peers, *((name, 0) for name in _BESIDE)]
    best: dict[str, float] = {}
    for _ in range(repeats):
        for contestant, workers in contestants:
            found = ask("load", **paths, contestant=contestant, workers=workers, epochs=2, one_core=one_core)
            name = f"{contestant}, {workers} workers" if contestant in PEER_FORMATS else contestant
            best[name] = max(best.get(name, 0.0), *found["rates"])
    return best


def _rate_figures(rates: dict[bool, dict[str, float]]) -> list[Figure]:
    figures = []
    for one_core, found in rates.items():
        where = "one core" if one_core else "all cores"
        own = found["lowtide"]
        peers = {name: rate for name, rate in found.items() if name.startswith(PEER_FORMATS)}
        fastest = max(peers, key=lambda name: peers[name])
        told = ", ".join(f"{name} {rate / 1e6:.2f}" for name, rate in peers.items())
        figures += [
            Figure(f"{where}: million valid steps a second", own / 1e6, "", 2 if one_core else None, "at least"),
            Figure(
                f"{where}: / DataLoader over datasets, {fastest}",
                own / peers[fastest],
                "",
                5 if one_core else None,
                "at least",
                told,
            ),
            *(
                Figure(f"{where}: / {what}", own / found[name], "", detail=f"{found[name] / 1e6:.2f}")
                for name, what in _BESIDE.items()
            ),
        ]
    return figures


def _memory_figures(held: dict[str, Any]) -> list[Figure]:
    total = {name: found["peak"] / MEGABYTE for name, found in held.items()}
    added = {name: (found["peak"] - found["start"]) / MEGABYTE for name, found in held.items()}
    imports = {name: found["start"] / MEGABYTE for name, found in held.items()}
    return [
        Figure(
            "memory added by loading, loader / datasets with 4 workers",
            added["loader"] / added["peer"],
            "",
            0.25,
            detail=f"{added['loader']:.0f} and {added['peer']:.0f} MB",
        ),
        Figure(
            "the same, libraries included (torch alone is most of it)",
            total["loader"] / total["peer"],
            "",
            detail=f"{total['loader']:.0f} ({imports['loader']:.0f} imported) and {total['peer']:.0f} MB "
            f"({imports['peer']:.0f} imported)",
        ),
        Figure(
            "memory added, store.dataset with 4 workers / datasets with 4",
            added["workers"] / added["peer"],
            "",
            detail=f"{added['workers']:.0f} and {added['peer']:.0f} MB",
        ),
        Figure("memory added by datasets without workers", added["peer alone"], "MB"),
    ]


def resume(sizes: Sizes) -> list[Figure]:
    """Random places to stop and go on at."""
    with temporary() as folder:
        found = ask("resume", path=str(folder / "store"), points=sizes.points)
    wrong = {name: count for name, count in found["wrong"].items() if count}
    told = ", ".join(f"{name} {count}" for name, count in wrong.items()) or f"{len(found['wrong'])} settings"
    return [
        Figure(f"of {sizes.points} random places, gone on with other batches", sum(wrong.values()), "", 0, detail=told),
        Figure("the slowest: from opening to the first batch", found["slowest"], "s", 1),
    ]


PARTS: dict[str, Callable[[Sizes], list[Figure]]] = {
    "ingest": ingest,
    "open": open_store,
    "padding": padding,
    "loading": loading,
    "resume": resume,
}
