"""Batches that are drawn by hand, and every tenth step an estimate of the loss in evaluation mode."""

import torch
from torch import nn

torch.manual_seed(0)
tokens = torch.randint(0, 16, (2000,))
model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def get_batch():
    starts = torch.randint(0, 1990, (4,))
    return torch.stack([tokens[s : s + 8] for s in starts]), torch.stack(
        [tokens[s + 1 : s + 9] for s in starts]
    )


def loss_of(inputs, targets):
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [loss_of(*get_batch()).item() for _ in range(3)]
    model.train()
    return sum(losses) / len(losses)


steps = validations = 0
for number in range(40):
    if number % 10 == 0:
        estimate_loss()
        validations += 1
    loss = loss_of(*get_batch())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    steps += 1
print("steps", steps)
print("validations", validations)
