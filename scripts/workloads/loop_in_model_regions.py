# expect: loop_in_model line guilty
# held out
# also: slow_optimizer
"""Pictures of different sizes: the model pools each region of interest of each picture in a call of its own."""
import torch
from torch import nn
from torch.nn import functional as F


class Regions(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8 * 4, 5)

    def forward(self, pictures, boxes):
        maps = self.features(pictures).relu()
        found = [F.adaptive_avg_pool2d(maps[n, :, top:down, :], 2).flatten() for n, top, down in boxes]  # guilty
        return self.head(torch.stack(found))


def main(steps=600):
    torch.manual_seed(1)
    model = Regions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        pictures = torch.rand(8, 3, 32, 32)
        boxes = [(n, top, top + 4 + (step + top) % 6) for n in range(8) for top in range(0, 10)]
        target = torch.randint(0, 5, (len(boxes),))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures, boxes), target)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
