# expect: too_many_workers line guilty
# held out
# also: thread_oversubscription data_loader_wait slow_steps slow_item too_few_workers
"""Spawned workers whose data set asks for a machine's worth of compute threads in each of them."""
import torch
from torch.utils.data import DataLoader, Dataset


class Mixed(Dataset):
    """Makes features of a sample by products of matrices."""

    def __init__(self):
        self.base = torch.linspace(-1, 1, 128 * 128).reshape(128, 128)
        self.ready = False

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if not self.ready:
            torch.set_num_threads(12)
            self.ready = True
        matrix = torch.sin(self.base * (1 + index % 5))
        for _ in range(2):
            matrix = torch.tanh(matrix @ self.base)
        return matrix[:8].reshape(-1), matrix.sum()


class Loop:
    def __init__(self, loader):
        self.loader = loader
        self.net = torch.nn.Sequential(torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)

    def run(self, steps):
        for _, (inputs, targets) in zip(range(steps), self.loader):
            loss = torch.nn.functional.l1_loss(self.net(inputs)[:, 0], targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Mixed(), batch_size=24, num_workers=3, multiprocessing_context="spawn")  # guilty
    print(Loop(loader).run(90))
