# expect: healthy
"""A plain loop whose time goes into matrix products."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(4096, 512), torch.randint(0, 10, (4096,))
for epoch in range(5):
    for start in range(0, len(data), 128):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data[start : start + 128]), labels[start : start + 128])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
