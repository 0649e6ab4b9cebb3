"""A teacher in evaluation mode inside every step: no validation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=8)
teacher, student = nn.Linear(8, 2).eval(), nn.Linear(8, 2)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
steps = 0
for _ in range(2):
    for (inputs,) in loader:
        with torch.no_grad():
            wanted = teacher(inputs).softmax(1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(student(inputs), wanted).backward()
        optimizer.step()
        steps += 1
print("steps", steps)
print("epochs", 2)
print("validations", 0)
