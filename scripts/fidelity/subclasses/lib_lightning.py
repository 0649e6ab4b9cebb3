"""Lightning: a module with lazy layers, a metric and a plateau scheduler; by the Trainer and by Fabric."""

import logging
import warnings

import lightning as pl
import torch
import torchmetrics
from moments import check, digest, kind, watch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
events = []


class Lazy(pl.LightningModule):
    """Has lazy layers that are moved before their shapes are known."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=2)

    def training_step(self, batch, index):
        """Return the loss."""
        x, y = batch
        answer = self.net(x)
        self.accuracy(answer, y)
        loss = nn.functional.cross_entropy(answer, y)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        """Note the metric."""
        events.append(
            (
                kind(self.accuracy),
                self.accuracy.compute().item(),
                self.trainer.optimizers[0].param_groups[0]["lr"],
            )
        )
        self.accuracy.reset()

    def configure_optimizers(self):
        """A scheduler that wants a metric: Lightning reads its signature."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "loss"}}


def loader():
    """Return a loader of twenty batches."""
    return DataLoader(TensorDataset(torch.randn(40, 4), torch.randint(0, 2, (40,))), batch_size=4)


def trainer(epochs):
    """Return a quiet trainer."""
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@check
def fits():
    """Three epochs of the trainer."""
    events.clear()
    model = Lazy().to("cpu")
    model(torch.ones(2, 4)) if False else model.net(torch.ones(2, 4))
    trainer(3).fit(model, loader())
    return events, [digest(p) for p in model.parameters()]


@check
def summary():
    """What Lightning says of a model whose sizes are not known yet, and of its moves."""
    model = Lazy().double().cpu().float().to("cpu")
    return str(pl.pytorch.utilities.model_summary.ModelSummary(model)), [kind(p) for p in model.parameters()]


@check
def fabric():
    """Five steps of Fabric."""
    fabric = pl.Fabric(accelerator="cpu", devices=1)
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)).to("cpu")
    model(torch.ones(1, 4))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters()))
    batches = fabric.setup_dataloaders(loader())
    for x, y in batches:
        optimizer.zero_grad()
        fabric.backward(nn.functional.cross_entropy(model(x), y))
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
    return type(model).__name__, [digest(p) for p in model.parameters()]


watch(2000, 400, counted=False)
