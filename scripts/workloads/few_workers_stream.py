# expect: too_few_workers line guilty
# held out
# also: slow_steps
"""Two workers turn the pages of an interface that answers slowly; the loop could use many more of them."""
import time

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PAGE = 16


def request_page(number):
    """The pause stands for a round trip to a server."""
    time.sleep(0.025)
    generator = torch.Generator().manual_seed(number)
    return torch.randn(PAGE, 512, generator=generator)


class Pages(IterableDataset):
    def __init__(self, pages):
        self.pages = pages

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, self.pages, info.num_workers):
            for row in request_page(number):
                yield row[:-1], row[-1:]


def main():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(511, 384), torch.nn.Tanh(), torch.nn.Linear(384, 384), torch.nn.Tanh(), torch.nn.Linear(384, 1))
    adam = torch.optim.Adam(net.parameters(), lr=3e-4)
    batches = DataLoader(Pages(480), batch_size=32, num_workers=2, persistent_workers=True)  # guilty
    for inputs, targets in batches:
        loss = F.mse_loss(net(inputs), targets)
        adam.zero_grad()
        loss.backward()
        adam.step()
    print(f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
