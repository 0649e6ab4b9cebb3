"""Nothing that a program's classes can be asked is asked by the recorder."""

from __future__ import annotations

HOOKED = """
asked, watching = [], []
def note(thing, name):
    if watching: asked.append(thing + " " + name)

class Meta(type):
    def __getattribute__(cls, name):
        note("class " + type.__getattribute__(cls, "__name__"), name)
        return type.__getattribute__(cls, name)
    def __hash__(cls):
        note("class", "hash")
        return type.__hash__(cls)
    def __eq__(cls, other):
        note("class", "==")
        return cls is other
    def __bool__(cls):
        note("class", "bool")
        return True
    def __instancecheck__(cls, thing):
        note("class", "isinstance")
        return type.__instancecheck__(cls, thing)
    def __subclasscheck__(cls, kind):
        note("class", "issubclass")
        return type.__subclasscheck__(cls, kind)
    def __repr__(cls):
        note("class", "repr")
        return "class"

def watched(base, **members):
    name = "Watched" + base.__name__
    def plain(self, name):
        return base.__getattribute__(self, name)
    def getattribute(self, asked_name):
        note(name, asked_name)
        return plain(self, asked_name)
    def getattr_(self, asked_name):
        note(name, "missing " + asked_name)
        missing = getattr(base, "__getattr__", None)
        if missing: return missing(self, asked_name)
        raise AttributeError(asked_name)
    def tell(special):
        inherited = getattr(base, special, None)
        def method(self, *arguments):
            note(name, special)
            return inherited(self, *arguments)
        return method
    def class_of(self):
        note(name, "__class__")
        return type(self)
    made = {
        special: tell(special)
        for special in ("__len__", "__bool__", "__eq__", "__hash__", "__repr__", "__str__", "__iter__", "__contains__")
        if getattr(base, special, None) is not None
    }
    made.update(
        __getattribute__=getattribute, __getattr__=getattr_, __class__=property(class_of), __module__="__main__",
    )
    made.update(members)
    meta = Meta if type(base) is type else type("Meta2", (Meta, type(base)), {})
    return meta(name, (base,), made)

class Words(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, index): return torch.arange(20) * index % 7
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = watched(nn.Embedding)(30_000, 4), watched(nn.Linear)(4, 2)
    def forward(self, ids, **more):
        return self.out(self.words(ids).mean(1))
class Collate:
    def __call__(self, samples):
        kind = dict if torch.utils.data.get_worker_info() else WatchedBatch
        return kind(ids=torch.stack(samples))
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter([torch.ones(2)] * 4)
class Weight(nn.Parameter): pass
WatchedBatch = watched(dict)
torch.manual_seed(0)
"""

TRAINING = """
def train(workers):
    data = watched(Words)()
    for dataset in (data, torch.utils.data.Subset(data, watched(list)(range(8)))):
        sampler = watched(torch.utils.data.SequentialSampler)(dataset)
        batches = watched(torch.utils.data.BatchSampler)(sampler, 4, False)
        loader = watched(torch.utils.data.DataLoader)(
            dataset, batch_sampler=batches, collate_fn=watched(Collate)(), num_workers=workers
        )
        net, loss = watched(Net)(), watched(nn.Identity)()
        net.extra = Weight(torch.ones(3))
        optimizer = watched(torch.optim.SGD)(net.parameters(), 0.1)
        other = watched(torch.optim.Adam)(net.words.parameters(), 0.1)
        scheduler = watched(torch.optim.lr_scheduler.StepLR)(optimizer, 1)
        for epoch in range(3):
            net.train(epoch < 2)
            for batch in loader:
                optimizer.zero_grad()
                other.zero_grad(set_to_none=False)
                value = loss(net(dict.__getitem__(batch, "ids"), more=batch)).sum()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                value.backward()
                optimizer.step()
                other.step()
            scheduler.step()
        for model in (torch.nn.DataParallel(net), torch.compile(net, backend="eager")):
            model.training
    for batch in watched(torch.utils.data.DataLoader)(watched(Stream)(), batch_size=2): pass
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(net(torch.ones(2, 20, dtype=torch.long)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
watching.append(True)
train(0)
train(2)
watching.clear()
print("\\n".join(asked))
"""


def test_no_hook_of_the_programs_classes_is_called_throughout_a_training(same) -> None:
    done = same(HOOKED + TRAINING)
    facts = done.journals[0].facts
    assert facts["model/WatchedNet/parameters"] == str(30_000 * 4 + 8 + 2 + 3)
    assert facts["loader/1/dataset"] == "__main__.WatchedWords"
    assert facts["loader/1/batch_size"] == "4"
    assert "loader/2/dataset_len" not in facts
    assert facts["optimizer/WatchedAdam#2/embedding_rows"] == "30000"
