"""Solve Poisson's equation with DeepXDE in a square, with the slope given at two sides and the value at the others."""

from __future__ import annotations

import time

import deepxde
import numpy as np
import torch

STEPS, EPOCHS = 250, 9
SQUARE = deepxde.geometry.Rectangle([0, 0], [1, 1])


def equation(place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return what the equation leaves at each place."""
    by_x = deepxde.grad.hessian(value, place, i=0, j=0)
    by_y = deepxde.grad.hessian(value, place, i=1, j=1)
    return by_x + by_y - 4


def solution(place: np.ndarray) -> np.ndarray:
    """Return the solution."""
    return (place**2).sum(axis=1, keepdims=True)


def main() -> None:
    """Train, and print the loss and the time of each epoch of steps."""
    np.random.seed(0)
    torch.manual_seed(0)
    slope = deepxde.NeumannBC(
        SQUARE,
        lambda place: 2 * np.isclose(place[:, 1:], 1).astype(np.float32),
        lambda place, on_boundary: on_boundary and (np.isclose(place[1], 0) or np.isclose(place[1], 1)),
    )
    value = deepxde.DirichletBC(
        SQUARE,
        solution,
        lambda place, on_boundary: on_boundary and (np.isclose(place[0], 0) or np.isclose(place[0], 1)),
    )
    data = deepxde.data.PDE(
        SQUARE, equation, [slope, value], num_domain=100, num_boundary=40, solution=solution, num_test=100
    )
    model = deepxde.Model(data, deepxde.maps.FNN([2] + [30] * 3 + [1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=0.001)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        history, _ = model.train(epochs=STEPS, display_every=STEPS)
        loss = np.sum(history.loss_train[-1])
        print(f"epoch {epoch} loss {loss:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
