# expect: activation_checkpointing line guilty
# also: launch_bound
"""Recomputes every block of a transformer in the backward pass, although most of the GPU's memory is free."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, width=1024, depth=10, classes=1000):
        super().__init__()
        layers = [
            nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        ]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)  # guilty
        return self.head(x.mean(1))


model = Encoder().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
data = torch.randn(32, 16, 512, 1024).to(torch.bfloat16).pin_memory()
labels = torch.randint(0, 1000, (32, 16), device="cuda")
for step in range(300):
    x = data[step % 32].cuda(non_blocking=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), labels[step % 32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print("loss", loss.item())
