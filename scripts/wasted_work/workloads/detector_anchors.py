# expect: loop_of_small_operations line guilty
# held out
# options: --inspect
"""Single-stage detector with anchors on synthetic rectangles (SSD style)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def box_iou(a, b):
    """a: (N,4), b: (M,4) as x1,y1,x2,y2 -> (N,M)"""
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area_a[:, None] + area_b[None] - inter)


def make_anchors(feat, stride, sizes):
    c = (torch.arange(feat) + 0.5) * stride
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    out = []
    for s in sizes:
        out.append(torch.stack([cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2], -1))
    return torch.stack(out, 2).reshape(-1, 4)


def encode(anchors, gt):
    aw, ah = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    ax, ay = anchors[:, 0] + aw / 2, anchors[:, 1] + ah / 2
    gw, gh = gt[:, 2] - gt[:, 0], gt[:, 3] - gt[:, 1]
    gx, gy = gt[:, 0] + gw / 2, gt[:, 1] + gh / 2
    return torch.stack([(gx - ax) / aw, (gy - ay) / ah, torch.log(gw / aw), torch.log(gh / ah)], -1)


class Matcher:
    def __init__(self, pos=0.5, neg=0.4):
        self.pos, self.neg = pos, neg

    def overlaps(self, anchors, gt_boxes):
        table = torch.zeros(len(anchors), len(gt_boxes))
        # fixed: return box_iou(anchors, gt_boxes)
        for j in range(len(gt_boxes)):
            # fixed:
            table[:, j] = box_iou(anchors, gt_boxes[j : j + 1])[:, 0]  # guilty
            # fixed:
        return table
        # fixed:

    def __call__(self, anchors, gt_boxes, gt_labels):
        iou = self.overlaps(anchors, gt_boxes)  # guilty
        best, idx = iou.max(1)
        labels = torch.full((len(anchors),), -1)
        labels[best < self.neg] = 0
        fg = best >= self.pos
        fg[iou.argmax(0)] = True
        labels[fg] = gt_labels[idx[fg]]
        return labels, encode(anchors[fg], gt_boxes[idx[fg]]), fg


class TinySSD(nn.Module):
    def __init__(self, n_anchor, n_cls):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.body = nn.Sequential(block(3, 16), block(16, 32), block(32, 48))
        self.cls = nn.Conv2d(48, n_anchor * (n_cls + 1), 3, padding=1)
        self.reg = nn.Conv2d(48, n_anchor * 4, 3, padding=1)
        self.n_cls = n_cls

    def forward(self, x):
        f = self.body(x)
        b = x.size(0)
        cls = self.cls(f).permute(0, 2, 3, 1).reshape(b, -1, self.n_cls + 1)
        reg = self.reg(f).permute(0, 2, 3, 1).reshape(b, -1, 4)
        return cls, reg


def sample_batch(batch, size, n_cls, n_box):
    images = torch.rand(batch, 3, size, size) * 0.2
    targets = []
    for b in range(batch):
        wh = torch.randint(8, 30, (n_box, 2))
        xy = (torch.rand(n_box, 2) * (size - wh)).long()
        labels = torch.randint(1, n_cls + 1, (n_box,))
        for (x, y), (w, h), c in zip(xy.tolist(), wh.tolist(), labels.tolist()):
            images[b, c - 1, y : y + h, x : x + w] += 0.7
        targets.append((torch.cat([xy, xy + wh], 1).float(), labels))
    return images, targets


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=100)
    ap.add_argument("--batch", type=int, default=6)
    ap.add_argument("--size", type=int, default=96)
    ap.add_argument("--boxes", type=int, default=18)
    ap.add_argument("--classes", type=int, default=3)
    ap.add_argument("--lr", type=float, default=0.01)
    args = ap.parse_args()
    torch.manual_seed(11)

    sizes = (12.0, 20.0, 28.0)
    anchors = make_anchors(args.size // 8, 8, sizes)
    net = TinySSD(len(sizes), args.classes)
    matcher = Matcher()
    opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    batches = [sample_batch(args.batch, args.size, args.classes, args.boxes) for _ in range(50)]

    for it in range(1, args.iters + 1):
        images, targets = batches[(it - 1) % len(batches)]
        cls, reg = net(images)
        cls_t, reg_t, fgs = [], [], []
        for boxes, labels in targets:
            c, r, fg = matcher(anchors, boxes, labels)
            cls_t.append(c)
            reg_t.append(r)
            fgs.append(fg)
        cls_t, fg = torch.stack(cls_t), torch.stack(fgs)
        cls_loss = F.cross_entropy(cls.flatten(0, 1), cls_t.flatten(), ignore_index=-1)
        reg_loss = F.smooth_l1_loss(reg[fg], torch.cat(reg_t))
        loss = cls_loss + reg_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 20 == 0:
            print(f"iter {it}: cls {cls_loss.item():.4f} reg {reg_loss.item():.4f} total {loss.item():.4f}")


if __name__ == "__main__":
    main()
