"""GradScaler on the CPU, LBFGS with closures, closures of others, foreach and fused optimizers; all steps counted."""

import torch
from moments import digest
from torch import nn

STEPS = 1500


def data():
    """Return inputs and targets."""
    torch.manual_seed(3)
    return torch.randn(4, 8), torch.randn(4, 2)


def scaled(inputs, targets):
    """Train with a scaler, of whose steps some are skipped for gradients that are infinite."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=50)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        if step % 100 == 50:
            model.weight.grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return digest(model.weight), scaler.get_scale(), scaler.state_dict()


def closures(inputs, targets):
    """Train with optimizers that are handed a closure, and say how often each called it."""
    for make in (torch.optim.LBFGS, torch.optim.SGD, torch.optim.Rprop):
        model = nn.Linear(8, 2)
        optimizer = make(model.parameters(), lr=0.01)
        calls = []

        def closure(model=model, optimizer=optimizer, calls=calls):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            calls.append(loss.item())
            return loss

        for _ in range(STEPS // 10):
            answer = optimizer.step(closure)
        yield (
            make.__name__,
            digest(model.weight),
            len(calls),
            type(answer).__name__,
            sorted(optimizer.state_dict()),
        )


def kinds(inputs, targets):
    """Train with optimizers of several kinds, foreach and fused."""
    for make, options in (
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adagrad, {}),
    ):
        model = nn.Linear(8, 2)
        optimizer = make(model.parameters(), lr=0.01, **options)
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=False)
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        yield make.__name__, digest(model.weight), torch.is_tensor(model.weight.grad)


print(scaled(*data()))
for row in (*closures(*data()), *kinds(*data())):
    print(row)
print(torch.rand(1).item())
