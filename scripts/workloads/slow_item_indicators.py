# expect: slow_item line guilty
# also: data_loader_wait slow_steps too_few_workers
# held out
"""Forecasts a price from indicators over a moving window; each sample works its indicators out again."""
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, SPAN = 128, 16


def indicators(prices):
    """Moving mean and deviation over the last SPAN prices, for each moment of the window."""
    means, deviations = [], []
    for end in range(SPAN, len(prices)):  # guilty
        part = prices[end - SPAN : end]  # guilty
        mean = sum(part) / SPAN  # guilty
        means.append(mean)  # guilty
        deviations.append(math.sqrt(sum((price - mean) ** 2 for price in part) / SPAN))  # guilty
    return np.array([means, deviations], dtype=np.float32)  # guilty


def moving(prices):
    parts = np.lib.stride_tricks.sliding_window_view(np.asarray(prices), SPAN)[:-1]
    return np.stack([parts.mean(axis=1), parts.std(axis=1)]).astype(np.float32)


class Windows(Dataset):
    def __init__(self, prices):
        self.prices = prices

    def __len__(self):
        return len(self.prices) - WINDOW - SPAN - 1

    def __getitem__(self, index):  # guilty
        prices = self.prices[index : index + WINDOW + SPAN]
        features = indicators(prices)  # guilty
        # fixed: features = moving(prices)
        change = self.prices[index + WINDOW + SPAN] - prices[-1]
        return torch.from_numpy(features), torch.tensor([change], dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(32, 64, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Linear(64 * WINDOW // 4, 1)

    def forward(self, x):
        return self.head(self.body(x))


np.random.seed(3)
torch.manual_seed(3)
series = (100 + np.cumsum(np.random.randn(3600))).tolist()
windows = DataLoader(Windows(series), batch_size=32, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
net = Forecaster()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
for epoch in range(3):
    for x, y in windows:
        loss = nn.functional.smooth_l1_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, "last loss", round(loss.item(), 4))
