"""The loop that compare_noise.py records: about 10 ms a step, with a known amount of work added."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, FEATURES, CLASSES = 64, 256, 10

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--extra-ms", type=float, default=0.0, help="processor time added to each step")
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
samples = BATCH * arguments.steps
data = TensorDataset(torch.randn(samples, FEATURES), torch.randint(0, CLASSES, (samples,)))
model = nn.Sequential(
    nn.Linear(FEATURES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_function = nn.CrossEntropyLoss()
for features, labels in DataLoader(data, batch_size=BATCH, shuffle=True):
    optimizer.zero_grad()
    loss_function(model(features), labels).backward()
    optimizer.step()
    end = time.process_time() + arguments.extra_ms / 1000
    while time.process_time() < end:
        pass
