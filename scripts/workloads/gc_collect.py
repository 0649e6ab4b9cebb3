# expect: gc_pause line guilty
# also: python_overhead
"""Collects garbage by hand in each step, "to save memory", with a large vocabulary alive."""
import gc

import torch

torch.manual_seed(0)
vocabulary = [{"word": f"word{i}", "ids": [i, i + 1]} for i in range(20_000)]
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(40):
    x = torch.randn(128, 512)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()  # guilty
    # fixed: pass
print(f"loss {loss.item():.4f} words {len(vocabulary)}")
