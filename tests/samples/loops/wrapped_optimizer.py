"""An optimizer that steps another one inside its own step."""

import torch
from torch import nn


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner, every):
        super().__init__(inner.param_groups, {})
        self.inner, self.every, self.number = inner, every, 0
        self.slow = [
            parameter.detach().clone() for group in inner.param_groups for parameter in group["params"]
        ]

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.number += 1
        if self.number % self.every == 0:
            fast = [parameter for group in self.inner.param_groups for parameter in group["params"]]
            for slow, parameter in zip(self.slow, fast, strict=True):
                parameter.copy_(slow.lerp_(parameter, 0.5))


torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1), every=5)
steps = 0
for _ in range(25):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 2, (16,))).backward()
    optimizer.step()
    steps += 1
print("steps", steps)
