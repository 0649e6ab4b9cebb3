# expect: healthy
# options: --inspect
"""Classify short messages with R-Drop: each batch passes twice with different dropout, and the two answers should agree."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, LENGTH, TOPICS = 500, 20, 6


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.drop = nn.Dropout(0.2)
        layer = nn.TransformerEncoderLayer(width, 4, 192, dropout=0.2, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, TOPICS)

    def forward(self, messages):
        return self.out(self.encoder(self.drop(self.words(messages))).mean(1))


def agreement(one, other):
    p, q = F.log_softmax(one, -1), F.log_softmax(other, -1)
    return 0.5 * (F.kl_div(p, q, log_target=True, reduction="batchmean") + F.kl_div(q, p, log_target=True, reduction="batchmean"))


def messages(count, generator):
    topics = torch.randint(TOPICS, (count,), generator=generator)
    words = torch.randint(WORDS, (count, LENGTH), generator=generator)
    typical = topics[:, None] * 40 + torch.randint(40, (count, LENGTH), generator=generator)
    return torch.where(torch.rand(count, LENGTH, generator=generator) < 0.25, typical, words), topics


def main(alpha=0.7):
    torch.manual_seed(14)
    texts, topics = messages(2400, torch.Generator().manual_seed(15))
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step = 0
    for epoch in range(2):
        for rows in torch.randperm(len(texts)).split(48):
            one, other = model(texts[rows]), model(texts[rows])
            wanted = topics[rows]
            loss = 0.5 * (F.cross_entropy(one, wanted) + F.cross_entropy(other, wanted)) + alpha * agreement(one, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
