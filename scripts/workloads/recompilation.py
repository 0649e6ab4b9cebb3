# expect: recompilation line guilty
# also: slow_steps slow_optimizer slow_start
"""A length curriculum under torch.compile: every new length of the sequences compiles the model again."""
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 64)
        self.mix = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.head = nn.Linear(64, 16)

    def forward(self, tokens):  # guilty
        x = self.embed(tokens)
        for layer in self.mix:
            x = x + torch.tanh(layer(x - x.mean(1, keepdim=True)))
        return self.head(x)


torch.manual_seed(0)
tagger = Tagger()
model = torch.compile(tagger, backend="aot_eager", dynamic=False)  # guilty
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.1)
for step in range(240):
    length = 24 + 4 * (step // 40)
    tokens = torch.randint(0, 128, (16, length))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens % 16).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
