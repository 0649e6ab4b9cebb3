"""kornia, torchmetrics, timm, opacus, pyro and ignite: their moves, hooks, tables and trainings."""

import copy
import logging
import pickle
import warnings

warnings.filterwarnings("ignore")
import kornia  # noqa: E402
import pyro  # noqa: E402
import timm.optim  # noqa: E402
import timm.scheduler  # noqa: E402
import timm.utils  # noqa: E402
import torch  # noqa: E402
import torchmetrics  # noqa: E402
from ignite.engine import Events, create_supervised_trainer  # noqa: E402
from moments import check, digest, kind, watch  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

logging.disable(logging.WARNING)


@check
def metrics():
    """Metrics are moved, converted, copied, pickled and joined."""
    from torchmetrics import Accuracy, MeanMetric, MeanSquaredError, MetricCollection

    made = MetricCollection([Accuracy("multiclass", num_classes=3), MeanMetric(), MeanSquaredError()][:1])
    made.to("cpu").update(torch.eye(3), torch.tensor([0, 1, 1]))
    mean = torchmetrics.MeanMetric().set_dtype(torch.float64).to("cpu")
    mean.update(torch.ones(3) * 2)
    twins = copy.deepcopy(made), pickle.loads(pickle.dumps(made))
    return (
        made.compute(),
        mean.compute(),
        digest(mean.mean_value),
        [twin.compute() for twin in twins],
        mean.device,
    )


@check
def images():
    """Augmentations of kornia with boxes and keypoints that carry their own to()."""
    chain = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomHorizontalFlip(p=0.5),
        kornia.augmentation.RandomAffine(20.0),
        data_keys=None,
    )
    out = chain({"input": torch.linspace(0, 1, 192).reshape(1, 3, 8, 8), "keypoints": torch.ones(1, 2, 2)})
    boxes = (
        kornia.geometry.boxes.Boxes.from_tensor(torch.tensor([[[1.0, 1, 4, 4]]]), mode="xyxy")
        .to(dtype=torch.float64)
        .to("cpu")
    )
    return [digest(part) for part in out.values()], kind(boxes), digest(boxes.to_tensor("xyxy"))


@check
def vision():
    """A model of timm learns with its own optimizer and average."""
    model = timm.create_model(
        "test_vit.r160_in1k", pretrained=False, num_classes=2, img_size=32, patch_size=16
    ).to("cpu")
    optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=0.01)
    average = timm.utils.ModelEmaV3(model)
    scheduler = timm.scheduler.CosineLRScheduler(optimizer, 5)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 3, 32, 32)).sum().backward()
        optimizer.step()
        average.update(model)
        scheduler.step(step)
    return [digest(p) for p in [*model.parameters()][-2:]], [
        digest(p) for p in [*average.module.parameters()][-1:]
    ]


@check
def privacy():
    """Gradients of each sample, clipped and noised by opacus."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,))), batch_size=4)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return kind(model), kind(optimizer), [digest(p) for p in model.parameters()]


@check
def inference():
    """Variational inference and a chain of pyro."""
    import pyro.distributions as dist

    def model(x):
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("x", dist.Normal(mean, 1.0), obs=x)

    pyro.clear_param_store()
    pyro.set_rng_seed(3)
    guide = pyro.infer.autoguide.AutoNormal(model)
    svi = pyro.infer.SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.05}), pyro.infer.Trace_ELBO())
    losses = [svi.step(torch.ones(5).to("cpu")) for _ in range(4)]
    chain = pyro.infer.MCMC(
        pyro.infer.HMC(model, step_size=0.1, num_steps=2, jit_compile=False), 3, 2, disable_progbar=True
    )
    chain.run(torch.ones(5))
    return losses, digest(guide.median()["mean"]), digest(chain.get_samples()["mean"])


@check
def engines():
    """An engine of ignite, which asks optimizers and hooks by itself."""
    model = nn.Linear(4, 2)
    trainer = create_supervised_trainer(
        model, torch.optim.Adam(model.parameters()), nn.functional.cross_entropy, device="cpu"
    )
    losses = []
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED(every=2), lambda engine: losses.append(engine.state.output)
    )
    trainer.run([(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))] * 4, max_epochs=2)
    return losses, digest(model.weight)


watch(1000, 500, counted=False)
