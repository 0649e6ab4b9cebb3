# expect: healthy
# options: --inspect
"""Masked modelling of sensor patches: in each step other patches are hidden, and only these are predicted."""
import torch
import torch.nn as nn

PATCHES, SIZE, HIDDEN = 40, 16, 24


class Masked(nn.Module):
    def __init__(self, width=80):
        super().__init__()
        self.inlet, self.places = nn.Linear(SIZE, width), nn.Parameter(0.02 * torch.randn(PATCHES, width))
        self.blank = nn.Parameter(torch.zeros(width))
        self.encoder = nn.TransformerEncoderLayer(width, 4, 200, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerEncoderLayer(width, 2, 120, dropout=0.0, batch_first=True, norm_first=True)
        self.outlet = nn.Linear(width, SIZE)

    def forward(self, patches):
        order = torch.rand(patches.shape[:2]).argsort(1)
        kept, hidden = order[:, HIDDEN:], order[:, :HIDDEN]
        rows = torch.arange(len(patches))[:, None]
        x = self.encoder(self.inlet(patches[rows, kept]) + self.places[kept])
        blanks = self.blank + self.places[hidden]
        x = self.decoder(torch.cat([blanks, x], 1))
        guess = self.outlet(x[:, :HIDDEN])
        return (guess - patches[rows, hidden]).square().mean()


def sensors(count, generator):
    time = torch.arange(PATCHES * SIZE) / 20.0
    speed = 0.5 + 2 * torch.rand(count, 3, 1, generator=generator)
    phase = 6.28 * torch.rand(count, 3, 1, generator=generator)
    waves = torch.sin(speed * time + phase).sum(1) + 0.1 * torch.randn(count, PATCHES * SIZE, generator=generator)
    return waves.view(count, PATCHES, SIZE)


torch.manual_seed(60)
patches = sensors(500, torch.Generator().manual_seed(61))
model = Masked()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=100)
for step in range(100):
    loss = model(patches[torch.randint(500, (32,))])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 20 == 0:
        print("step %d loss %.5f" % (step, loss.item()))
