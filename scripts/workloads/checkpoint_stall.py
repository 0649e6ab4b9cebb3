# expect: checkpoint_stall line guilty
# also: slow_steps
"""Saves the whole training state every fifth step, on the training thread."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1536), nn.ReLU(), nn.Linear(1536, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
inputs, labels = torch.randn(4096, 256), torch.randint(0, 10, (4096,))

with tempfile.TemporaryDirectory() as folder:
    for step in range(100):
        rows = torch.arange(step * 32, step * 32 + 32) % len(inputs)
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, os.path.join(folder, "last.pt"))  # guilty
            # fixed: pass
print("loss", loss.item())
