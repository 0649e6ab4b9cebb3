"""torch_geometric: Data.to, batches, lazy layers, EdgeIndex and HashTensor subclasses, a training."""

import copy
import pickle

import torch
from moments import check, digest, kind, watch
from torch_geometric import EdgeIndex, Index
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.hash_tensor import HashTensor
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, Linear, SAGEConv, global_mean_pool

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def graph(seed=0):
    """Return a graph of three nodes."""
    torch.manual_seed(seed)
    return Data(x=torch.randn(3, 4), edge_index=EDGES.clone(), y=torch.tensor([seed % 2]))


def described(value):
    """Say the class and digest."""
    if isinstance(value, (Data, Batch, HeteroData)):
        return f"{kind(value)} {[(k, described(v)) for k, v in value.to_dict().items()]}"
    if isinstance(value, torch.Tensor):
        plain = value.as_tensor() if hasattr(value, "as_tensor") else value.as_subclass(torch.Tensor)
        return f"{kind(value)} {digest(plain)}"
    return f"{kind(value)} {value}"


SUBCLASSES = {
    "EdgeIndex": lambda: EdgeIndex(EDGES, sparse_size=(3, 3), sort_order="row", is_undirected=True),
    "Index": lambda: Index([0, 1, 1, 2], dim_size=3, is_sorted=True),
    "HashTensor": lambda: HashTensor(torch.tensor([3, 1, 7]), torch.arange(6.0).reshape(3, 2)),
}
CALLS = {
    "to": lambda t: t.to("cpu"),
    "int": lambda t: t.to(torch.int32),
    "cpu": lambda t: t.cpu(),
    "clone": lambda t: t.clone(),
    "long": lambda t: t.long(),
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "add": lambda t: t + 1,
    "cat": lambda t: torch.cat([t, t], dim=-1),
    "copy_": lambda t: t.copy_(t),
    "nonzero": lambda t: t.nonzero(),
    "masked": lambda t: t.masked_select(torch.ones(4, dtype=torch.bool)),
    "csr": lambda t: t.get_csr()[0],
    "select": lambda t: t[..., :2],
    "matmul": lambda t: t @ torch.ones(3, 2),
    "share": lambda t: t.share_memory_(),
    "unique": lambda t: t.unique(),
    "bool": lambda t: bool((t == 1).any()),
}


@check
def calls():
    """What each call gives for each class."""
    found = []
    for name, make in SUBCLASSES.items():
        for call_name, call in CALLS.items():
            try:
                found.append(f"{name} {call_name} {described(call(make()))}")
            except Exception as error:
                found.append(f"{name} {call_name} {type(error).__name__} {str(error)[:60]}")
    return "\n    ".join(found)


@check
def data():
    """Graphs that are moved, joined and taken apart."""
    hetero = HeteroData()
    hetero["a"].x = torch.ones(2, 3)
    hetero["a", "to", "a"].edge_index = EdgeIndex(EDGES[:, :1], sparse_size=(2, 2))
    batch = Batch.from_data_list([graph(1), graph(2)])
    return "\n    ".join(
        map(
            described,
            [
                graph().to("cpu"),
                graph().cpu(),
                batch.to("cpu", non_blocking=True),
                hetero.to("cpu"),
                *batch.to_data_list(),
                graph().apply(lambda t: t.to(torch.float64)),
                graph().contiguous(),
            ],
        )
    )


@check
def learns():
    """Models with lazy sizes learn from batches of graphs."""
    found = []
    for make in (GCNConv, SAGEConv, lambda i, o: GATConv(i, o // 2, heads=2)):
        first, second, head = make(-1, 8), make(8, 8), Linear(-1, 2)
        model = torch.nn.ModuleList([first, second, head]).to("cpu")
        with torch.no_grad():
            head(first(graph().x, EDGES))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for batch in DataLoader([graph(n) for n in range(8)], batch_size=4, shuffle=True):
            batch = batch.to("cpu")
            optimizer.zero_grad()
            hidden = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)
            torch.nn.functional.cross_entropy(head(global_mean_pool(hidden, batch.batch)), batch.y).backward()
            optimizer.step()
        found.append([digest(p) for p in model.parameters()])
    return found


watch(2000, 400, counted=False)
