# expect: worker_imbalance line guilty
# held out
# also: data_loader_wait slow_steps
"""Each worker reads from a mirror of its own, and one of the mirrors is slow."""
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Mirrored(Dataset):
    """The pauses stand for mirrors that answer."""

    answers = (0.0005, 0.0005, 0.0045)

    def __len__(self):
        return 6000

    def __getitem__(self, index):  # guilty
        time.sleep(self.answers[get_worker_info().id])
        # fixed: time.sleep(self.answers[index % 3])
        return torch.linspace(0, 1, 896) * (index % 9), torch.tensor([float(index % 2)])


class Trainer:
    def __init__(self, loader):
        torch.manual_seed(0)
        self.loader = loader
        self.net = torch.nn.Sequential(torch.nn.Linear(896, 896), torch.nn.ReLU(), torch.nn.Linear(896, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4)

    def run(self):
        for features, targets in self.loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.net(features), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


def main():
    loader = DataLoader(Mirrored(), batch_size=24, num_workers=3, shuffle=True)  # guilty
    print("loss", Trainer(loader).run())


if __name__ == "__main__":
    main()
