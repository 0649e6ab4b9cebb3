# expect: item_time_spread line guilty
# also: data_loader_wait slow_steps
"""Nearly all documents are short, but one in a hundred takes as long as all the others of its batch together."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    """The pauses stand for a parser that runs elsewhere."""

    def __init__(self, size):
        self.pages = [150 if index % 100 == 17 else 1 for index in range(size)]

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):  # guilty
        time.sleep(0.0004 * self.pages[index])
        return torch.randn(768), index % 4


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
loader = DataLoader(Documents(6000), batch_size=25, shuffle=True, num_workers=3)  # guilty
for documents, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(documents), labels)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
