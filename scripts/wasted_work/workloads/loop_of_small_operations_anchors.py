# expect: loop_of_small_operations line guilty
# options: --inspect
# also: loop_in_model python_overhead slow_steps
"""A one-stage detector with dense anchors; the targets are made box by box for each picture of the batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, STRIDE, CLASSES, OBJECTS = 64, 8, 3, 10


def anchor_boxes():
    centres = (torch.arange(SIZE // STRIDE) + 0.5) * STRIDE
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    boxes = []
    for width, height in ((8, 8), (16, 16), (12, 24), (24, 12)):
        boxes.append(torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1))
    return torch.stack(boxes, 2).reshape(-1, 4)


def overlaps(boxes, anchors):
    """Intersection over union of boxes [..., 4] with all anchors: [..., anchors]."""
    boxes = boxes[..., None, :]
    low, high = torch.maximum(boxes[..., :2], anchors[:, :2]), torch.minimum(boxes[..., 2:], anchors[:, 2:])  # guilty
    common = (high - low).clamp(min=0).prod(-1)  # guilty
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1) + (anchors[:, 2:] - anchors[:, :2]).prod(-1)
    return common / (area - common)  # guilty


@torch.no_grad()
def assign(boxes, anchors):
    """The box of each anchor and how well they fit, for [batch, objects, 4] boxes."""
    quality = boxes.new_zeros(boxes.shape[0], boxes.shape[1], len(anchors))
    for picture in range(boxes.shape[0]):
    # fixed: for picture in [slice(None)]:
        for number in range(boxes.shape[1]):
        # fixed: for number in [slice(None)]:
            quality[picture, number] = overlaps(boxes[picture, number], anchors)  # guilty
    return quality.max(1)


class Detector(nn.Module):
    def __init__(self, shapes=4, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()
        )
        self.shapes = shapes
        self.head = nn.Conv2d(width, shapes * (CLASSES + 5), 1)

    def forward(self, pictures):
        out = self.head(self.body(pictures))
        out = out.permute(0, 2, 3, 1).reshape(len(pictures), -1, CLASSES + 5)
        return out[..., 0], out[..., 1:5], out[..., 5:]


def detection_loss(outputs, anchors, boxes, kinds):
    objectness, offsets, logits = outputs
    quality, owner = assign(boxes, anchors)  # guilty
    positive = quality > 0.4
    goal = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
    kind = kinds.gather(1, owner)
    present = F.binary_cross_entropy_with_logits(objectness, positive.float(), pos_weight=torch.tensor(4.0))
    near = F.smooth_l1_loss(offsets[positive], (goal - anchors)[positive] / STRIDE)
    return present + near + F.cross_entropy(logits[positive], kind[positive])


def street(batch, generator):
    centres = torch.rand(batch, OBJECTS, 2, generator=generator) * SIZE
    sides = 8 + 14 * torch.rand(batch, OBJECTS, 2, generator=generator)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], 2)
    kinds = torch.randint(CLASSES, (batch, OBJECTS), generator=generator)
    y, x = torch.meshgrid(torch.arange(SIZE) + 0.5, torch.arange(SIZE) + 0.5, indexing="ij")
    inside = ((x > boxes[..., 0, None, None]) & (x < boxes[..., 2, None, None])
              & (y > boxes[..., 1, None, None]) & (y < boxes[..., 3, None, None])).float()
    planes = F.one_hot(kinds, CLASSES).float()
    pictures = torch.einsum("bohw,boc->bchw", inside, planes)
    return pictures + 0.1 * torch.randn(pictures.shape, generator=generator), boxes, kinds


def main():
    torch.manual_seed(19)
    pictures, boxes, kinds = street(256, torch.Generator().manual_seed(20))
    anchors = anchor_boxes()
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for step in range(90):
        rows = torch.randint(256, (8,))
        loss = detection_loss(model(pictures[rows]), anchors, boxes[rows], kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step:3d} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
