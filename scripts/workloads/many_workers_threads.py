# expect: too_many_workers line guilty
# also: thread_oversubscription data_loader_wait slow_steps slow_item
"""Each worker blurs its images with many compute threads, and there are far more of them than cores."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CORES = len(os.sched_getaffinity(0))


class Blurred(Dataset):
    def __init__(self):
        self.images = torch.rand(4096, 1, 48, 48)
        self.kernel = torch.ones(1, 1, 9, 9) / 81

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        blurred = nn.functional.conv2d(self.images[index][None], self.kernel, padding=4)[0]
        return blurred.flatten(), index % 10


def use_all_cores(worker_id):
    torch.set_num_threads(4 * CORES)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(48 * 48, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Blurred(), batch_size=32, num_workers=2 * CORES, worker_init_fn=use_all_cores)  # guilty
for step, (images, labels) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    if step == 100:
        break
print("loss", loss.item())
