# expect: shallow_prefetch line guilty
# also: data_loader_wait slow_steps
"""Eight quick micro-batches, then long work on all of them: the queue of two cannot hold what a burst takes."""
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

micro_batches, block_size, vocabulary = 8, 64, 128


class Blocks(IterableDataset):
    """The pause stands for a tokenizer service."""

    def __iter__(self):
        for number in range(800):
            time.sleep(0.006)
            tokens = torch.arange(number, number + 4 * (block_size + 1)) % vocabulary
            tokens = tokens.view(4, block_size + 1)
            yield tokens[:, :-1], tokens[:, 1:]


class Bigram(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(vocabulary, 48)
        self.head = torch.nn.Linear(48, vocabulary)

    def forward(self, idx, targets):
        logits = self.head(self.table(idx))
        return F.cross_entropy(logits.view(-1, vocabulary), targets.reshape(-1))


class Flatness(torch.nn.Module):
    """What is looked at after each step: how flat the spectrum of some weights is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("probe", torch.randn(350, 350))

    def forward(self):
        return torch.linalg.svdvals(self.probe)


torch.manual_seed(0)
model, flatness = Bigram(), Flatness()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Blocks(), batch_size=None, num_workers=1, prefetch_factor=2)  # guilty
for number, (xb, yb) in enumerate(loader):
    loss = model(xb, yb) / micro_batches
    loss.backward()
    if number % micro_batches == micro_batches - 1:
        for _ in range(4):
            spectrum = flatness()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
print(loss.item(), spectrum[0].item())
