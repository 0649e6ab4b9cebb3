# expect: loop_of_small_operations line guilty
# options: --inspect
# also: loop_in_model python_overhead slow_steps slow_optimizer
"""Characters of a made-up language by a small transformer; each attention head is a module of its own."""
import torch
from torch import nn
from torch.nn import functional as F

SYMBOLS, CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 40, 32, 96, 8, 3, 12


class Head(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.key = nn.Linear(WIDTH, size, bias=False)
        self.query = nn.Linear(WIDTH, size, bias=False)
        self.value = nn.Linear(WIDTH, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(CONTEXT, CONTEXT)))

    def forward(self, x):
        k, q, v = self.key(x), self.query(x), self.value(x)  # guilty
        weights = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5  # guilty
        weights = weights.masked_fill(self.tril == 0, float("-inf"))  # guilty
        return F.softmax(weights, dim=-1) @ v  # guilty


class JoinedHeads(nn.Module):
    """All heads at once; for long contexts."""

    def __init__(self, heads):
        super().__init__()
        layers = [getattr(head, kind) for kind in ("query", "key", "value") for head in heads]
        self.inlet = nn.Linear(WIDTH, 3 * WIDTH, bias=False, device="meta")
        self.inlet.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))

    def forward(self, x):
        q, k, v = self.inlet(x).view(len(x), CONTEXT, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self, size=WIDTH // HEADS):
        super().__init__()
        self.heads = nn.ModuleList(Head(size) for _ in range(HEADS))
        # fixed: self.heads = JoinedHeads([Head(size) for _ in range(HEADS)])
        self.outlet = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        joined = torch.cat([head(x) for head in self.heads], dim=-1)  # guilty
        # fixed: joined = self.heads(x)
        return self.outlet(joined)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.perceptron(self.second(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.outlet = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, symbols):
        x = self.symbols(symbols) + self.places.weight
        return self.outlet(self.blocks(x))


def main(steps=200):
    torch.manual_seed(50)
    generator = torch.Generator().manual_seed(51)
    follows = torch.randint(0, SYMBOLS, (SYMBOLS,), generator=generator)
    text = [0]
    noise = torch.randint(0, SYMBOLS, (20_000,), generator=generator).tolist()
    for place in range(20_000):
        text.append(noise[place] if noise[place] < 4 else int(follows[text[-1]]))
    text = torch.tensor(text)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(steps):
        begins = torch.randint(0, len(text) - CONTEXT - 1, (BATCH, 1), generator=generator)
        places = begins + torch.arange(CONTEXT + 1)
        batch = text[places]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
