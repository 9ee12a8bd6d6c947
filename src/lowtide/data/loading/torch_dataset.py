"""Batches through a plain torch DataLoader, whose workers each map the store and copy nothing of it.

Worker processes pay where a user's own Python transforms are slow; else `store.loader` is faster with one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from lowtide.data.batch import Batch
from lowtide.data.loading.loader import Loader
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.view import View
from lowtide.errors import LowtideError

_MOST_WORKERS = 1024


class BatchDataset(IterableDataset[Batch]):
    """Gives whole batches: `DataLoader(store.dataset(batch_size=64), batch_size=None, num_workers=4)`.

    The DataLoader's own batch_size says nothing here, so it is None, or its default of 1. Batches come in the same
    order for any number of workers. Each time that the DataLoader is looped over, the next epoch begins.
    """

    def __init__(self, view: View, settings: LoaderSettings) -> None:
        """Check the settings on the view; workers make their own loader of them.

        Raises:
            LowtideError: As for a loader; or the settings ask for what a DataLoader does.
        """
        super().__init__()
        if settings.pin_memory:
            raise LowtideError(
                what="pin_memory=True in a dataset",
                why="its batches go through a DataLoader, which pins them where they arrive",
                fix="give pin_memory=True to the DataLoader",
            )
        self._view = view
        self._settings = replace(settings, prefetch_bytes=0)
        self._loader: Loader | None = Loader(view, self._settings)
        # Shared with worker processes: the next epoch, in as many places as there may be workers. The main process is
        # not told when its DataLoader begins one. Each worker begins each epoch once, and counts up the places that are
        # its own then: each has been counted up once when all have begun, however many workers there are this time.
        self._epochs = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        epoch = int(self._epochs[worker])
        self._epochs[worker::workers] += 1
        return self._made_loader().part(epoch, worker, workers)

    def __len__(self) -> int:
        """Batches of the next epoch."""
        loader = self._made_loader()
        loader.set_epoch(int(self._epochs[0]))
        return len(loader)

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be over this epoch."""
        self._made_loader().set_epoch(epoch)
        self._epochs.fill_(epoch)

    def _made_loader(self) -> Loader:
        if self._loader is None:
            self._loader = Loader(self._view, self._settings)
        return self._loader

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loader": None}


def _only(batches: list[Batch], *, collate_fn_map: Mapping[Any, Any] | None = None) -> Batch:
    """What a DataLoader with its default batch_size of 1 makes of a batch: the batch."""
    del collate_fn_map
    if len(batches) != 1:
        raise LowtideError(
            what=f"a DataLoader collected {len(batches)} batches into one",
            why="the dataset gives whole batches",
            fix="give the DataLoader batch_size=None, and the dataset the batch_size that is wanted",
        )
    return batches[0]


default_collate_fn_map[Batch] = _only
