# expect: healthy
"""Trains a compiled transformer in bfloat16 on token batches that are ready on the GPU."""

import torch
from torch import nn

torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self, words=8192, width=1024, depth=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


model = torch.compile(Decoder().cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(0, 8192, (64, 16, 513), device="cuda")
for step in range(700):
    batch = tokens[step % 64]
    with torch.autocast("cuda", torch.bfloat16):
        words = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(words.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        print("loss", loss.item())
