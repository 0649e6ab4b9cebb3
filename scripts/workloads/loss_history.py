# expect: host_memory_growth line guilty
# also: python_overhead slow_steps
"""Adds up the loss of each validation-like pass with its graph, so that the activations of all of them live on."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 16))
teacher = nn.Linear(128, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
history = []
for step in range(1500):
    x = torch.randn(64, 128)
    target = teacher(x).argmax(1)
    loss = nn.functional.cross_entropy(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probe = torch.randn(16, 128)
    agreement = nn.functional.mse_loss(model(probe), teacher(probe))  # guilty
    history.append(agreement)  # guilty
print("loss", loss.item(), "agreement", sum(one.item() for one in history) / len(history))
