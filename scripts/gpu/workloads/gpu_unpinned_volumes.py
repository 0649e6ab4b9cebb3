# expect: unpinned_transfer line guilty
# also: exposed_transfer data_loader_wait too_few_workers needless_workers utilization_sawtooth gpu_waits_for_data
"""Copies batches of 100 MB from memory that is not pinned, for a small 3D network."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self):
        self.volumes = torch.randn(24, 1, 128, 128, 128)

    def __len__(self):
        return 12 * 120

    def __getitem__(self, index):
        return self.volumes[index % 24]


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv3d(1, 8, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv3d(8, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool3d(1),
    nn.Flatten(),
    nn.Linear(16, 1),
).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(Volumes(), batch_size=12, num_workers=8, prefetch_factor=4)
for step, volumes in enumerate(loader):
    volumes = volumes.cuda(non_blocking=True)  # guilty
    loss = model(volumes).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print("loss", loss.item())
