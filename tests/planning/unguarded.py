"""Plans and trains like a user's first script: no guard, a model of its own, a lambda for a loss. Tells its bytes.

    python unguarded.py LONGEST [GROUP]

GROUP is the folder of a memory cgroup: this process enters it, and its limit becomes the budget.
"""
# ruff: noqa: D101, D102, D107 - a script

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import lowtide
from lowtide.memory import held, watch

longest, group = int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
if group is not None:
    (group / "tasks").write_text(str(os.getpid()))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        print("a forward that talks")  # noqa: T201 - that is the point
        values: Tensor = self.head(self.rnn(x)[0])
        return values


def batch(rows: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """A batch whose first sequence is the longest."""
    told = torch.randint(steps // 2, steps + 1, (rows,))
    told[0] = steps
    return torch.randn(rows, steps, 8), torch.randn(rows, steps, 4), told


model = lowtide.lean(Model())
loss_fn = lambda out, wanted: ((out - wanted) ** 2).mean(-1)  # noqa: E731 - that is the point
optimizer = torch.optim.Adam(model.parameters())
lengths = np.random.default_rng(0).integers(longest // 10, longest, 400)
lengths[7] = longest
budget = 2 * held() + (90 << 20)
if group is not None:
    (group / "memory.limit_in_bytes").write_text(str(budget))
with watch() as planning:
    plan = lowtide.plan(
        model, loss_fn, optimizer=optimizer, sample=batch(4, 20), lengths=lengths, batch_size=128, budget=budget
    )
plan.prepare(optimizer)
step = lowtide.PlannedStep(model, loss_fn, plan)
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
with watch() as peak:
    for steps in (longest, *(choice.steps for choice in plan.choices), longest // 7, longest):
        loss = step(batch(128, steps))
        optimizer.step()
        optimizer.zero_grad()
told = {
    "budget": budget,
    "planned": plan.peak_bytes,
    "planning": planning.bytes,
    "measured": peak.bytes if peak.exact else peak.at_least,
    "at_least": peak.at_least,
    "loss": loss.item(),
    "choices": str(plan.choices),
    "sure": plan.sure,
}
os.write(out, f"\n{json.dumps(told)}\n".encode())
