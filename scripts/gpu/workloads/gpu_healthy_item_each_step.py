# expect: healthy
"""Reads the loss of a large model in each step: the wait is the GPU's own work, and costs next to nothing."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 8), nn.Linear(1024, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
total = 0.0
for step in range(70):
    x = torch.randn(128, 256, 1024, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).float().logsumexp(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
print("mean loss", total / 70)
