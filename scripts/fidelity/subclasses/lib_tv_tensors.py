"""torchvision's tv_tensors and v2 transforms: moved, wrapped, in a data set without and with workers."""

import copy
import pickle

import torch
from moments import check, checks, digest, kind, report, watch
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2


def made():
    """Return one of each class."""
    image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
    boxes = tv_tensors.BoundingBoxes([[1, 1, 5, 5], [2, 0, 7, 6]], format="XYXY", canvas_size=(8, 8))
    return [tv_tensors.Image(image), tv_tensors.Video(image[None]), tv_tensors.Mask(image[:1] % 2), boxes]


def described(value):
    """Say a value's class, format and digest."""
    if isinstance(value, torch.Tensor):
        return f"{kind(value)} {getattr(value, 'format', '')} {digest(value.as_subclass(torch.Tensor))}"
    return f"{kind(value)} {value}"


CALLS = {
    "to": lambda t: t.to(torch.float32),
    "device": lambda t: t.to("cpu", copy=True),
    "cpu": lambda t: t.cpu(),
    "clone": lambda t: t.clone(),
    "add": lambda t: t + 1,
    "deepcopy": copy.deepcopy,
    "requires": lambda t: t.float().requires_grad_(),
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "copy_": lambda t: t.clone().copy_(t),
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.flatten()[:4].tolist(),
    "nonzero": lambda t: t.nonzero(),
    "detach": lambda t: t.detach(),
    "like": lambda t: tv_tensors.wrap(t + 1, like=t),
    "numpy": lambda t: t.numpy().sum(),
    "bool": lambda t: bool((t > 200).any()),
    "stack": lambda t: torch.stack([t, t]),
    "select": lambda t: t.masked_select(t > 4),
}


@check
def calls():
    """What each call gives for each class, and with return types kept."""
    found = []
    for value in made():
        for name, call in CALLS.items():
            try:
                plain = call(value)
                with tv_tensors.set_return_type("TVTensor"):
                    kept = call(value)
                found.append(f"{name} {described(plain)} | {described(kept)}")
            except Exception as error:
                found.append(f"{name} {type(error).__name__} {str(error)[:70]}")
    return "\n    ".join(found)


@check
def transforms():
    """What transforms make of all at once."""
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(6, antialias=True),
            v2.RandomHorizontalFlip(0.5),
            v2.RandomRotation(30),
            v2.ColorJitter(0.2),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
            v2.ClampBoundingBoxes(),
            v2.SanitizeBoundingBoxes(labels_getter=None),
            v2.ToPureTensor(),
        ]
    )
    image, _, mask, boxes = made()
    return [described(part) for part in chain(image, mask, boxes)]


class Pictures(Dataset):
    """Ten pictures with boxes, whose transform moves."""

    transform = v2.Compose(
        [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)]
    )

    def __len__(self):
        """Ten."""
        return 10

    def __getitem__(self, index):
        """Transform one."""
        image, _, mask, boxes = made()
        return self.transform(tv_tensors.wrap(image + index, like=image), boxes, mask)


def loaded():
    """Batches with and without workers, and an epoch of training with them."""
    found = []
    for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
        torch.manual_seed(7)
        loader = DataLoader(Pictures(), batch_size=5, num_workers=workers, multiprocessing_context=context)
        model, digests = torch.nn.Conv2d(3, 1, 3), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in loader:
            optimizer.zero_grad()
            model(batch[0].to("cpu", non_blocking=True)).mean().backward()
            optimizer.step()
            digests.append([described(part) for part in batch])
        found.append((workers, context, digests, digest(model.weight)))
    return found


if __name__ == "__main__":
    before = {"loaded": ""}
    watch(2000, 400, counted=False)
    checks[:] = [loaded]
    report("loaders", before)
