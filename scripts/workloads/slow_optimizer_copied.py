# expect: slow_optimizer line guilty
# also: python_overhead slow_steps
"""Fine-tunes a small tagger with an AdamW that was copied from an old library, tensor by tensor, and a scheduler."""
import math

import torch
import torch.nn as nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


class AdamW(Optimizer):
    """Implements Adam algorithm with weight decay fix."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):  # guilty
        for group in self.param_groups:
            for p in group["params"]:  # guilty
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                beta1, beta2 = group["betas"]
                state["step"] += 1
                exp_avg.mul_(beta1).add_(p.grad, alpha=1.0 - beta1)  # guilty
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1.0 - beta2)  # guilty
                denom = exp_avg_sq.sqrt().add_(group["eps"])  # guilty
                correction = math.sqrt(1.0 - beta2 ** state["step"]) / (1.0 - beta1 ** state["step"])
                p.addcdiv_(exp_avg, denom, value=-group["lr"] * correction)  # guilty
                if group["weight_decay"] > 0.0:
                    p.add_(p, alpha=-group["lr"] * group["weight_decay"])  # guilty


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self, width=64, depth=16, tags=9):
        super().__init__()
        self.embedding = nn.Embedding(500, width)
        self.layers = nn.Sequential(*[Layer(width) for _ in range(depth)])
        self.classifier = nn.Linear(width, tags)

    def forward(self, words):
        return self.classifier(self.layers(self.embedding(words)))


def main():
    torch.manual_seed(20)
    model = Tagger()
    words = torch.randint(0, 500, (2000, 8))
    tags = words % 9
    decay = [p for n, p in model.named_parameters() if "norm" not in n and "bias" not in n]
    no_decay = [p for n, p in model.named_parameters() if "norm" in n or "bias" in n]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=5e-4)  # guilty
    # fixed: optimizer = torch.optim.AdamW(groups, lr=5e-4, eps=1e-6, fused=True)
    total = 500
    scheduler = LambdaLR(optimizer, lambda s: min(s / 50, max(0.0, (total - s) / (total - 50))))
    for step in range(total):
        rows = torch.randint(0, len(words), (4,))
        loss = nn.functional.cross_entropy(model(words[rows]).flatten(0, 1), tags[rows].flatten())
        loss.backward()
        optimizer.step()  # guilty
        scheduler.step()
        optimizer.zero_grad()
        if step % 125 == 0:
            print(f"step {step} loss {loss.item():.4f}")


main()
