# expect: checkpoint_stall line guilty
# also: slow_steps
"""Saves a model of 400 MB and its optimizer every 20 steps."""

import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(4096, 4096), nn.ReLU()))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
with tempfile.TemporaryDirectory() as folder:
    for step in range(80):
        x = torch.randn(4096, 4096, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, folder + "/last.pt")  # guilty
            print("loss", loss.item())
