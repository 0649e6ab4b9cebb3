# expect: healthy
# also: python_overhead
"""Two tasks whose gradients pull apart: each is taken by itself, and what points against the other is removed."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
trunk = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
heads = nn.ModuleList([nn.Linear(512, 8), nn.Linear(512, 1)])
weights = [*trunk.parameters(), *heads.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.01)
inputs = torch.randn(4096, 128)
kinds = (inputs[:, :8]).argmax(1)
sizes = inputs[:, 8:40].sum(1, keepdim=True)


def gradient_of(loss):
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    return [torch.zeros_like(weight) if weight.grad is None else weight.grad.clone() for weight in weights]


for step in range(1200):
    rows = torch.randint(4096, (256,))
    features = trunk(inputs[rows])
    losses = (
        nn.functional.cross_entropy(heads[0](features), kinds[rows]),
        nn.functional.mse_loss(heads[1](features), sizes[rows]),
    )
    first, second = (gradient_of(loss) for loss in losses)
    along = sum((mine * other).sum() for mine, other in zip(first, second))
    scale = along.clamp(max=0) / sum(other.square().sum() for other in second)
    for weight, mine, other in zip(weights, first, second):
        weight.grad = mine + other - scale * other
    optimizer.step()
print(float(losses[0]), float(losses[1]))
