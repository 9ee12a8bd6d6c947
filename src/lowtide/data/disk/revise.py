"""A new version of a store with the same sequences: other splits, transforms, documents or notes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lowtide.data.disk import versions
from lowtide.data.disk.files import disk_errors
from lowtide.data.disk.supplements import Supplements
from lowtide.data.store import Store
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.splitting.splits import Splits
    from lowtide.data.transforms import Transform


def revise(
    store: Store,
    *,
    splits: Splits | None = None,
    transforms: Sequence[Transform] | None = None,
    documents: Mapping[str, str] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Store:
    """Write a version with the same sequences, and open it; what is None stays as it is.

    Args:
        store: The store; it must be the current version.
        splits: Which sequences belong to which part.
        transforms: Fitted, in the order in which they are applied.
        documents: Texts that belong to the data, by name; those of other names stay.
        notes: How the data came in.

    Raises:
        LowtideError: The store has a newer version, another process writes to it, or the disk is full.
    """
    building = store.path / f"{versions.BUILDING}revision"
    with versions.writing(store.path):
        before = versions.read_current(store.path)
        old, new = store.manifest.version, before.version
        if old != new:
            raise LowtideError(
                what=f"version {old} of {store.path} was to be revised, and its current version is {new}",
                why="what was fitted to one version need not fit another",
                fix="open the store anew, and begin from there",
            )
        versions.clean(store.path)
        onto = replace(before, version=versions.next_version(store.path), previous=before.version)
        try:
            with disk_errors(building):
                building.mkdir()
            made = Supplements(None, documents, splits, transforms, notes).save(store.path, building, onto)
            versions.publish(store.path, building, made)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        versions.clean(store.path)
    return Store(store.path)
