# expect: straggler_rank
# also: slow_steps python_overhead synchronised_accumulation
# run: torchrun --nproc-per-node 2
"""Started by torchrun; the first rank's model call does far more work, because its sequences are longer."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    model = DDP(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    length = 160 if rank == 0 else 32
    for _ in range(80):
        tokens = torch.randn(16, length, 64)
        loss = (model(tokens) - tokens).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("rank", rank, "loss", float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
