# expect: healthy
# also: slow_start
"""The fixed twin of recompilation.py: sequences are padded to one length, so it is compiled once."""
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 128)
        self.mix = nn.ModuleList(nn.Linear(128, 128) for _ in range(6))
        self.head = nn.Linear(128, 16)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.mix:
            x = x + torch.tanh(layer(x - x.mean(1, keepdim=True)))
        return self.head(x)


torch.manual_seed(0)
tagger = Tagger()
model = torch.compile(tagger, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.1)
for step in range(160):
    length = 24 + 4 * (step // 40)
    tokens = torch.zeros(32, 40, dtype=torch.long)
    tokens[:, :length] = torch.randint(1, 128, (32, length))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens % 16).flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
