"""One optimizer for the matrices and one for the other parameters, stepped one after the other, without a loader."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
optimizers = [torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(others)]
steps = 0
for _ in range(25):
    inputs, targets = torch.randn(16, 8), torch.randint(0, 2, (16,))
    nn.functional.cross_entropy(model(inputs), targets).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    steps += 1
print("steps", steps)
