# expect: unchanging_work line guilty
# options: --inspect
"""Train a picture encoder against the frozen text encoder of a contrastive model; one prompt for each class."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NAMES = "apple banana bicycle bottle bridge bucket camera candle carrot chair clock cloud cup door drum fish flower fork " \
        "glove guitar hammer hat horse house kettle key ladder lamp leaf lemon".split()
TEMPLATE = "a small photo of a {}"
LENGTH = 28


def tokenise(text):
    codes = [ord(c) - 31 for c in text][:LENGTH]
    return codes + [0] * (LENGTH - len(codes))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.between(x))


class TextEncoder(nn.Module):
    def __init__(self, width=64, heads=4, depth=2, out=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(96, width), nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.project = nn.LayerNorm(width), nn.Linear(width, out, bias=False)

    def forward(self, ids):
        x = self.norm(self.blocks(self.tokens(ids) + self.places))
        return F.normalize(self.project(x.mean(1)), dim=-1)


class PictureEncoder(nn.Module):
    def __init__(self, out=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 4, 4), nn.GELU())
        self.mix = nn.Sequential(nn.Conv2d(24, 48, 3, padding=1), nn.GELU(), nn.Conv2d(48, 64, 3, 2, 1), nn.GELU())
        self.project = nn.Linear(64, out)

    def forward(self, x):
        return F.normalize(self.project(self.mix(self.stem(x)).mean((2, 3))), dim=-1)


def augment(pictures):
    if torch.rand(()) < 0.5:
        pictures = pictures.flip(-1)
    return pictures + 0.1 * torch.randn_like(pictures)


def main():
    torch.manual_seed(31)
    text_encoder = TextEncoder().eval()
    for parameter in text_encoder.parameters():
        parameter.requires_grad_(False)
    prompts = torch.tensor([tokenise(TEMPLATE.format(name)) for name in NAMES])
    encoder = PictureEncoder()
    scale = nn.Parameter(torch.tensor(2.3))
    optimizer = torch.optim.AdamW([*encoder.parameters(), scale], lr=2e-3)

    looks = F.interpolate(torch.randn(len(NAMES), 3, 8, 8), scale_factor=4)
    labels = torch.randint(len(NAMES), (960,))
    pictures = looks[labels] + 0.5 * torch.randn(960, 3, 32, 32)
    with torch.no_grad():
        texts = text_encoder(prompts)
        print("closest two classes %.4f" % (texts @ texts.T).fill_diagonal_(-1).max())

    step = 0
    for epoch in range(6):
        for batch in torch.randperm(len(labels)).split(64):
            with torch.no_grad():
                texts = text_encoder(prompts)  # guilty
                # fixed: pass
            similarity = scale.exp() * encoder(augment(pictures[batch])) @ texts.T
            loss = F.cross_entropy(similarity, labels[batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch} steps {step} loss {loss.item():.5f} temperature {scale.item():.5f}")


if __name__ == "__main__":
    main()
