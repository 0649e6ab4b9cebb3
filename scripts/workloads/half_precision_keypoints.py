# expect: half_precision_on_cpu
"""Regresses key points of hands; the autocast was written for a GPU and stays on without one."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Keypoints(nn.Module):
    def __init__(self, points=21):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.head = nn.Linear(32 * 12 * 12, 2 * points)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


images = torch.rand(512, 1, 48, 48)
targets = torch.rand(512, 42)
model = Keypoints().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(250):
    chosen = torch.randint(0, 512, (16,))
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = nn.functional.smooth_l1_loss(model(images[chosen].to(device)).float(), targets[chosen].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
