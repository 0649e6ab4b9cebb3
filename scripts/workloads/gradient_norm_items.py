# expect: gradient_norm_per_step line guilty
# also: slow_optimizer python_overhead
"""A Trainer that logs the norm of its gradients by hand, tensor by tensor, in each step."""
import torch
from torch import nn


def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.detach().data.norm(2).item() ** 2  # guilty
    return total**0.5


class Trainer:
    def __init__(self, max_steps):
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Tanh()) for _ in range(30)]
        self.model = nn.Sequential(*layers, nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.max_steps = max_steps
        self.history = []

    def training_step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y)

    def fit(self, batches):
        for step, batch in zip(range(self.max_steps), batches):
            self.optimizer.zero_grad()
            loss = self.training_step(batch)
            loss.backward()
            self.history.append(grad_norm(self.model))
            self.optimizer.step()


def batches():
    x = torch.randn(512, 32)
    y = x.mean(1, keepdim=True)
    while True:
        for start in range(0, 512, 64):
            yield x[start : start + 64], y[start : start + 64]


trainer = Trainer(max_steps=400)
trainer.fit(batches())
print("last norm", trainer.history[-1])
