# expect: tensor_cores_unused
# also: kernel_hotspot
"""Trains a transformer in float32 without TF32, so that its matrix products use no tensor cores."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Linear(1024, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
data = torch.randn(64, 16, 256, 1024).pin_memory()
for step in range(70):
    x = data[step % 64].cuda(non_blocking=True)
    loss = model(x).logsumexp(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print("loss", loss.item())
