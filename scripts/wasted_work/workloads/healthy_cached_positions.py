# expect: healthy
# options: --inspect
"""A causal transformer over event streams; its rotary positions and its mask are buffers that are made once."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EVENTS, LENGTH, WIDTH, HEADS = 120, 96, 64, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        half = WIDTH // HEADS // 2
        angle = torch.outer(torch.arange(LENGTH).float(), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        late = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        self.register_buffer("mask", late, persistent=False)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[:x.shape[-2]], self.sin[:x.shape[-2]]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        weights = (weights + self.mask[:t, :t]).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, WIDTH))


class Stream(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.events = nn.Embedding(EVENTS, WIDTH)
        self.parts = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, 128), nn.SiLU(), nn.Linear(128, WIDTH))])
            for _ in range(depth)
        )
        self.out = nn.Linear(WIDTH, EVENTS)

    def forward(self, events):
        x = self.events(events)
        for norm, attention, norm2, mlp in self.parts:
            x = x + attention(norm(x))
            x = x + mlp(norm2(x))
        return self.out(x)


def main():
    torch.manual_seed(50)
    follow = torch.randint(EVENTS, (EVENTS, 4))
    rows = [torch.randint(EVENTS, (300,))]
    for _ in range(LENGTH):
        rows.append(follow[rows[-1], torch.randint(4, (300,))])
    streams = torch.stack(rows, 1)
    model = Stream()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for step in range(100):
        batch = streams[torch.randint(300, (8,))]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(step + 1, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
