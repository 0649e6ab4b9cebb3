# expect: unused_gradients
# twin: healthy
"""Adapt a pretrained audio encoder to new keywords: train the last two blocks and a new classifier."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
KEYWORDS = 8
BANDS, FRAMES = 40, 64


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1)
        self.norm = nn.GroupNorm(8, cout)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class AudioEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBlock(1, 16, 1)
        self.blocks = nn.ModuleList([ConvBlock(16, 32, 2), ConvBlock(32, 32, 1), ConvBlock(32, 64, 2), ConvBlock(64, 96, 1)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x.mean((2, 3))


class KeywordModel(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, KEYWORDS))

    def forward(self, x):
        return self.classifier(self.encoder(x))


def spectrograms(n, gen):
    y = torch.randint(0, KEYWORDS, (n,), generator=gen)
    t = torch.linspace(0, 1, FRAMES)
    centre = 8 + 3 * y[:, None] + 4 * torch.sin(6.28 * (t + y[:, None] / KEYWORDS))
    band = torch.arange(BANDS)[None, :, None]
    x = torch.exp(-0.5 * (band - centre[:, None]) ** 2)
    return (x + 0.3 * torch.randn(n, BANDS, FRAMES, generator=gen)).unsqueeze(1), y


def load_pretrained(path):
    encoder = AudioEncoder()
    encoder.load_state_dict(torch.load(path))
    return encoder


def spec_augment(x):
    t0 = int(torch.randint(0, FRAMES - 8, (1,)))
    b0 = int(torch.randint(0, BANDS - 5, (1,)))
    x = x.clone()
    x[..., t0:t0 + 8] = 0
    x[:, :, b0:b0 + 5] = 0
    return x


def main(epochs=6, batch=16):
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "encoder.pt")
        torch.save(AudioEncoder().state_dict(), path)
        model = KeywordModel(load_pretrained(path))
    trainable = list(model.encoder.blocks[-2:].parameters()) + list(model.classifier.parameters())
    opt = torch.optim.AdamW(trainable, lr=1e-3)
    # fixed: opt = torch.optim.AdamW(trainable, lr=1e-3); [part.requires_grad_(False) for part in (model.encoder.stem, *model.encoder.blocks[:-2])]
    gen = torch.Generator().manual_seed(3)
    x_train, y_train = spectrograms(1600, gen)
    x_val, y_val = spectrograms(128, gen)
    for epoch in range(epochs):
        model.train()
        total = torch.zeros(())
        for idx in torch.randperm(len(x_train)).split(batch):
            opt.zero_grad()
            loss = F.cross_entropy(model(spec_augment(x_train[idx])), y_train[idx])
            loss.backward()
            opt.step()
            total += loss.detach()
        model.eval()
        with torch.no_grad():
            acc = (model(x_val).argmax(1) == y_val).float().mean().item()
        print(f"epoch {epoch}: loss {total.item() * batch / len(x_train):.4f} val acc {acc:.3f}")


if __name__ == "__main__":
    main()
