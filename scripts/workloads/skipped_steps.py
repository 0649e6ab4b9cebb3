# expect: skipped_steps line guilty
# also: slow_steps
"""A gradient scaler whose scale overflows float16 again and again, because it grows after every four steps."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=4, growth_factor=2.0)
LARGEST = 65504.0
for step in range(400):
    x = torch.randn(128, 128)
    loss = (model(x) - x).square().mean()
    scaled = scaler.scale(loss)
    if scaled.detach() > LARGEST:  # what a loss in half precision would do
        scaled = scaled * float("inf")
    optimizer.zero_grad()
    scaled.backward()
    scaler.step(optimizer)  # guilty
    scaler.update()
print("loss", loss.item(), "scale", scaler.get_scale())
