# expect: slow_optimizer line guilty
# held out
# twin: healthy
"""A small GPT in the manner of nanoGPT, with many layers and an AdamW that updates one tensor after the other."""
import torch
import torch.nn as nn
from torch.nn import functional as F

block_size, n_embd, n_head, n_layer, vocab_size = 32, 32, 4, 24, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.fc, self.out = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (a.view(B, T, n_head, C // n_head).transpose(1, 2) for a in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.c_proj(y)
        return x + self.out(F.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


torch.manual_seed(1337)
data = torch.randint(0, vocab_size, (20_000,))
model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), foreach=False)  # guilty
# fixed: optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)

for iter_num in range(150):
    ix = torch.randint(len(data) - block_size - 1, (4,))
    X = torch.stack([data[i : i + block_size] for i in ix.tolist()])
    Y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix.tolist()])
    logits, loss = model(X, Y)
    loss.backward()
    optimizer.step()  # guilty
    optimizer.zero_grad(set_to_none=True)
    if iter_num % 50 == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}")
