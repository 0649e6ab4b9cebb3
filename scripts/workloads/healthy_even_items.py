# expect: healthy
"""The fixed twin of rare_long_items.py: the same work, spread evenly over the documents."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.randn(768), index % 4


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
loader = DataLoader(Documents(4000), batch_size=25, shuffle=True, num_workers=6)
for documents, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(documents), labels)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
