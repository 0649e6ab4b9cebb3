# expect: host_sync_in_step line guilty
# also: launch_bound small_batch busy_but_idle_units python_overhead
"""Reads forty values of the GPU in each step of a small model."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 40)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(128, 1024, 512, device="cuda")
labels = torch.randint(0, 40, (1024,), device="cuda")
recall = [0.0] * 40
for step in range(500):
    logits = model(data[step % 128])
    loss = nn.functional.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits = logits.argmax(1) == labels
    for label in range(40):
        recall[label] += hits[labels == label].float().mean().item()  # guilty
print("recall", sum(recall) / 40)
