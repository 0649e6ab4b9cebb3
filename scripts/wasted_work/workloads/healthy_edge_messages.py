# expect: healthy
# options: --inspect
"""Messages that need both ends of an edge, and a decoder whose convolution sees neighbouring pixels."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, EDGES, WIDTH, SIZE = 300, 3000, 32, 8


class Edges(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.begin, self.end = nn.Linear(width, width), nn.Linear(width, width)
        self.message = nn.Linear(width, width)

    def forward(self, x, begin, end):
        pairs = F.relu(self.begin(x)[begin] + self.end(x)[end])
        return x + torch.zeros_like(x).index_add(0, end, self.message(pairs)) / 10


class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.edges = nn.ModuleList(Edges(WIDTH) for _ in range(2))
        self.inlet, self.middle = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 4 * SIZE * SIZE)
        self.smooth, self.last = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, places, begin, end):
        x = F.relu(self.inlet(places))
        for layer in self.edges:
            x = layer(x, begin, end)
        picture = self.middle(x.view(10, -1, WIDTH).mean(1)).view(10, 4, SIZE, SIZE)
        wide = F.interpolate(picture, scale_factor=4, mode="bilinear", align_corners=False)
        return self.last(F.relu(self.smooth(wide)))


def batch():
    places = torch.randn(NODES, 6)
    begin, end = torch.randint(NODES, (2, EDGES))
    target = places.view(10, -1, 6).mean((1, 2)).view(10, 1, 1, 1).expand(10, 1, 4 * SIZE, 4 * SIZE)
    return places, begin, end, target


torch.manual_seed(110)
model = Maps()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(100):
    places, begin, end, target = batch()
    loss = F.mse_loss(model(places, begin, end), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")
