"""Train a small network that separates many random sources, with asteroid's loss of the best order of them."""

from __future__ import annotations

import sys
import time
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# The package, without its models, and two measures of speech that this training does not use.
package = types.ModuleType("asteroid")
package.__path__ = ["asteroid"]
sys.modules["asteroid"] = package
for name, kind in (("pmsqe", "SingleSrcPMSQE"), ("stoi", "NegSTOILoss"), ("multi_scale_spectral", "SingleSrcMultiScaleSpectral")):
    module = types.ModuleType(f"asteroid.losses.{name}")
    setattr(module, kind, None)
    sys.modules[module.__name__] = module

from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr  # noqa: E402

MIXTURES, SOURCES, LENGTH, BATCH, EPOCHS = 64, 7, 4000, 8, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    moments = torch.arange(LENGTH) / 8000
    sources = torch.sin(moments * torch.empty(MIXTURES, SOURCES, 1).uniform_(600, 6000))
    loader = DataLoader(TensorDataset(sources.sum(1, keepdim=True), sources), batch_size=BATCH, shuffle=True)
    network = nn.Sequential(
        nn.Conv1d(1, 64, 16, stride=8),
        nn.ReLU(),
        nn.Conv1d(64, 64, 5, padding=2),
        nn.ReLU(),
        nn.ConvTranspose1d(64, SOURCES, 16, stride=8),
    )
    loss_function = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for mixture, target in loader:
            loss = loss_function(network(mixture), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
