# expect: healthy
"""Gradient accumulation over four micro-batches, with a learning-rate schedule and clipping."""
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, num_layers=2), nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
data, labels = torch.randn(512, 24, 64), torch.randint(0, 16, (512, 24))
model.train()
for step in range(30):
    for micro in range(4):
        start = (step * 4 + micro) * 16 % len(data)
        output = model(data[start : start + 16])
        loss = nn.functional.cross_entropy(output.flatten(0, 1), labels[start : start + 16].flatten())
        (loss / 4).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
print("loss", loss.item())
