# expect: healthy
# options: --inspect
# also: activation_checkpointing
"""A language model on long rows with little memory: each block is computed again in the backward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

LETTERS = 64


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, width=48, depth=3, length=160):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, text):
        x = self.letters(text) + self.places[:text.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def text(length, generator):
    steps = torch.randint(1, 4, (length,), generator=generator)
    return steps.cumsum(0) % LETTERS


torch.manual_seed(0)
letters = text(60000, torch.Generator().manual_seed(1))
model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
for step in range(90):
    starts = torch.randint(len(letters) - 161, (4,)).tolist()
    rows = torch.stack([letters[start:start + 161] for start in starts])
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print("step", step, "loss %.4f" % loss.item())
