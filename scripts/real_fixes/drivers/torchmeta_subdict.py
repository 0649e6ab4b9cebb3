"""Learn to fit waves from few points with torchmeta: model-agnostic meta-learning, five steps for each task."""

from __future__ import annotations

import sys
import time
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import nn

# Only its data sets of images need these.
for module in (
    "torchmeta.datasets",
    "torchvision",
    "torchvision.transforms",
    "torchvision.transforms.functional",
):
    sys.modules[module] = MagicMock(Compose=type("Compose", (), {}))

from torchmeta.modules import MetaLinear, MetaSequential  # noqa: E402
from torchmeta.toy.helpers import sinusoid  # noqa: E402
from torchmeta.utils.data import BatchMetaDataLoader  # noqa: E402
from torchmeta.utils.data.task import SubsetTask  # noqa: E402
from torchmeta.utils.gradient_based import gradient_update_parameters  # noqa: E402

TASKS, BATCHES, EPOCHS, INNER, HIDDEN = 16, 12, 6, 5, 40

SubsetTask.__getitems__ = lambda self, places: [self[place] for place in places]  # PyTorch demands it since


def block(inputs: int, outputs: int) -> MetaSequential:
    """Return a layer and its nonlinearity."""
    return MetaSequential(MetaLinear(inputs, outputs), nn.ReLU())


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    dataset = sinusoid(shots=10, test_shots=15, seed=0)
    batches = iter(BatchMetaDataLoader(dataset, batch_size=TASKS, num_workers=0))
    model = MetaSequential(
        block(1, HIDDEN), block(HIDDEN, HIDDEN), block(HIDDEN, HIDDEN), MetaSequential(MetaLinear(HIDDEN, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(BATCHES):
            batch = next(batches)
            tasks = [[each.float() for each in batch[part]] for part in ("train", "test")]
            (train_inputs, train_targets), (test_inputs, test_targets) = tasks
            outer_loss = torch.tensor(0.0)
            for task in range(TASKS):
                params = None
                for _ in range(INNER):
                    inner_loss = F.mse_loss(model(train_inputs[task], params=params), train_targets[task])
                    model.zero_grad()
                    params = gradient_update_parameters(
                        model, inner_loss, params=params, step_size=0.01, first_order=True
                    )
                outer_loss += F.mse_loss(model(test_inputs[task], params=params), test_targets[task])
            outer_loss.div_(TASKS)
            optimizer.zero_grad()
            outer_loss.backward()
            optimizer.step()
            total += outer_loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / BATCHES:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
