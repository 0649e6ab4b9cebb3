"""Fit a Bayesian regression to many random points with Pyro, a part of them in each step."""

from __future__ import annotations

import time

import torch

torch.__version__ = "1.4.0"  # this Pyro refuses later ones

import pyro  # noqa: E402
import pyro.distributions as dist  # noqa: E402
from pyro.infer import SVI, Trace_ELBO  # noqa: E402
from pyro.infer.autoguide import AutoDiagonalNormal  # noqa: E402
from pyro.optim import Adam  # noqa: E402

POINTS, FEATURES, BATCH, STEPS, EPOCHS = 100_000, 20, 256, 100, 6


def model(inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Sample weights, then the targets of a part of the points."""
    weights = pyro.sample("weights", dist.Normal(torch.zeros(FEATURES), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(torch.tensor(0.0), 1.0))
    with pyro.plate("points", POINTS, subsample_size=BATCH) as chosen:
        pyro.sample("targets", dist.Normal(inputs[chosen] @ weights + bias, 0.5), obs=targets[chosen])


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    pyro.set_rng_seed(0)
    inputs = torch.randn(POINTS, FEATURES)
    targets = inputs @ torch.randn(FEATURES) + 0.5 * torch.randn(POINTS)
    inference = SVI(model, AutoDiagonalNormal(model), Adam({"lr": 1e-2}), Trace_ELBO())
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        total = sum(inference.step(inputs, targets) for _ in range(STEPS))
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / STEPS / POINTS:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
