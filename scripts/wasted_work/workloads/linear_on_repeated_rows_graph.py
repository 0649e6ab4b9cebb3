# expect: linear_on_repeated_rows line guilty
# options: --inspect
"""Message passing on a road network: each edge sends a linear map of the node where it begins."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, EDGES, WIDTH = 600, 9000, 48


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message, self.own = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, begin, end, gates):
        sent = self.message(x[begin])  # guilty
        # fixed: sent = self.message(x)[begin]
        gathered = torch.zeros_like(x).index_add(0, end, sent * gates)
        return self.norm(x + F.relu(self.own(x) + gathered))


class Traffic(nn.Module):
    def __init__(self, sensors):
        super().__init__()
        self.inlet = nn.Linear(sensors, WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH) for _ in range(3))
        self.outlet = nn.Linear(WIDTH, 1)

    def forward(self, readings, begin, end, gates):
        x = F.relu(self.inlet(readings))
        for layer in self.layers:
            x = layer(x, begin, end, gates)  # guilty
        return self.outlet(x)[:, 0]


def network(generator):
    begin = torch.randint(NODES, (EDGES,), generator=generator)
    end = torch.randint(NODES, (EDGES,), generator=generator)
    gates = 0.1 * torch.rand(EDGES, 1, generator=generator)
    return begin, end, gates


torch.manual_seed(90)
begin, end, gates = network(torch.Generator().manual_seed(91))
model = Traffic(12)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(100):
    readings = torch.randn(NODES, 12)
    speed = readings.mean(1) + 0.1 * torch.randn(NODES)
    loss = F.mse_loss(model(readings, begin, end, gates), speed)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")
