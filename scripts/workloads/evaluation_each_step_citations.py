# expect: evaluation_each_step line guilty
"""Node classification on a citation graph: one step per epoch, on the whole graph, and the accuracy after each."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PAPERS, LINKS, WORDS, TOPICS = 1500, 12_000, 200, 7


class Spread(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.map = nn.Linear(inputs, outputs)

    def forward(self, x, links, weights):
        x = self.map(x)
        return torch.zeros_like(x).index_add(0, links[1], x[links[0]] * weights)


class Topics(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first, self.last = Spread(WORDS, width), Spread(width, TOPICS)

    def forward(self, x, links, weights):
        return self.last(F.relu(self.first(x, links, weights)), links, weights)


def citations():
    generator = torch.Generator().manual_seed(11)
    topics = torch.randint(TOPICS, (PAPERS,), generator=generator)
    centers = torch.randn(TOPICS, WORDS, generator=generator)
    words = centers[topics] + 2.0 * torch.randn(PAPERS, WORDS, generator=generator)
    links = torch.randint(PAPERS, (2, LINKS), generator=generator)
    count = torch.bincount(links[1], minlength=PAPERS).clamp(min=1)
    return words, topics, links, (1.0 / count)[links[1]][:, None]


@torch.no_grad()
def accuracy(model, graph, topics, chosen):
    model.eval()
    right = model(*graph)[chosen].argmax(1) == topics[chosen]  # guilty
    return right.float().mean().item()


torch.manual_seed(0)
torch.set_num_threads(1)
words, topics, *edges = citations()
graph = (words, *edges)
model = Topics()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
train, valid = torch.arange(140), torch.arange(140, 640)
best = 0.0
for epoch in range(700):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(*graph)[train], topics[train])
    loss.backward()
    optimizer.step()
    best = max(best, accuracy(model, graph, topics, valid))
    if epoch % 100 == 99:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, best accuracy {best:.3f}")
