# expect: logging_overhead line guilty
# options: --sample 50
# also: python_overhead slow_optimizer
"""Writes a CSV line, a JSON line and the whole history to disk in each step, and forces them out."""
import csv
import json
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []

with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log.csv"), "w") as file:
    writer = csv.writer(file)
    for step in range(300):
        x = torch.randn(64, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append({"step": step, "loss": loss.item()})  # guilty
        writer.writerow([step, history[-1]["loss"]])  # guilty
        file.flush()  # guilty
        os.fsync(file.fileno())  # guilty
        with open(os.path.join(folder, "history.json"), "w") as state:  # guilty
            json.dump(history, state, indent=1)  # guilty
print("loss", history[-1])
