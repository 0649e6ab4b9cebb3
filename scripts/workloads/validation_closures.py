# expect: validation_share line guilty
# also: slow_steps
"""A forecast of load curves in functional style; the whole held-back year is looked at every tenth step."""
import math
from functools import partial

import torch
from torch import nn
from torch.nn.functional import mse_loss

HOURS, AHEAD = 72, 24


def make_series(days, seed):
    generator = torch.Generator().manual_seed(seed)
    hours = torch.arange(days * 24, dtype=torch.float32)
    return torch.sin(hours * math.tau / 24) + 0.5 * torch.sin(hours * math.tau / 168) + 0.1 * torch.randn(len(hours), generator=generator)


def make_windows(series):
    windows = series.unfold(0, HOURS + AHEAD, 1)
    return windows[:, :HOURS], windows[:, HOURS:]


def make_batches(windows, size, seed):
    past, future = windows
    generator = torch.Generator().manual_seed(seed)

    def batches():
        while True:
            chosen = torch.randint(0, len(past), (size,), generator=generator)
            yield past[chosen], future[chosen]

    return batches()


def make_step(model, optimizer, criterion):
    def step(past, future):
        optimizer.zero_grad()
        loss = criterion(model(past), future)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def make_validate(model, criterion, windows, size):
    past, future = windows

    @torch.no_grad()
    def validate():  # guilty
        model.eval()
        total = torch.zeros(())
        for some_past, some_future in zip(past.split(size), future.split(size)):  # guilty
            total += criterion(model(some_past), some_future, reduction="sum")  # guilty
        model.train()
        return total.item() / future.numel()

    return validate


def fit(step, batches, validate, steps, every):
    best = math.inf
    for number in range(1, steps + 1):
        loss = step(*next(batches))
        if number % every == 0:
            best = min(best, validate())  # guilty
    return loss.item(), best


torch.manual_seed(8)
network = nn.Sequential(nn.Linear(HOURS, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, AHEAD))
train_step = make_step(network, torch.optim.Adam(network.parameters(), lr=1e-3, fused=True), mse_loss)
held_back = make_validate(network, partial(mse_loss), make_windows(make_series(365, seed=2)), size=512)
training = make_batches(make_windows(make_series(730, seed=1)), 128, seed=3)
final, best = fit(train_step, training, held_back, steps=600, every=10)
# fixed: final, best = fit(train_step, training, held_back, steps=600, every=30)
print(f"training loss {final:.4f}, best validation loss {best:.4f}")
