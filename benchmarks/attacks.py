"""Attacks against their floor and against other libraries, on one thread, interleaved in one run.

    python benchmarks/attacks.py
    python benchmarks/attacks.py --only elu lstm      # these rows alone; the others stay

The floor of a K-step attack is K forward passes and K backward passes to the input alone, weights frozen, by autograd:
no step is taken. Every contestant gets the labels, starts at the clean point and takes 10 steps of a quarter of eps in
the l-infinity ball, within [0, 1]; FGSM takes one of eps. For SAC's actor ours is ``MaxDiff``, and the floor is K
passes with its divergence; the other libraries have no attack on continuous actions. Of peers, with the module as it
comes and with its weights frozen, the faster stands here. Foolbox is called through ``run``, which spares it the check
of success; ART takes and returns arrays.
"""

from __future__ import annotations

import copy
import functools
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from networks import CASES, Case
from peers import EPS, PACKAGES, PEERS, STEP, Call
from timing import (
    INTERLEAVED,
    Data,
    Page,
    Results,
    interleave,
    machine,
    machines,
    made_by,
    medians,
    prose,
    put,
    releases,
    table,
    timing_options,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers import Linf, MaxDiff, MinBest, from_module
from adv_wrappers.attacks.objectives import CrossEntropy, SquaredDistance
from adv_wrappers.core.engine.context import Context
from adv_wrappers.victims.sb3.victim import from_sb3

STEPS = 10
FLOOR, OURS, WHOLE = "floor", "adv_wrappers", "adv_wrappers, MinBest with its label"
LONGEST = 30.0  # seconds that the rounds of one network and batch size take, unless three of them take longer
_KEY = torch.zeros(1, dtype=torch.int64)
_NO_KERNEL = (
    "detach", "alias", "_unsafe_view", "_reshape_alias", "view", "t", "unsqueeze", "squeeze", "expand", "empty",
    "empty_like", "new_empty",
)  # fmt: skip
_SYNCS = ("_local_scalar_dense", "nonzero")
Loss = Callable[[Tensor], Tensor]


class Count(TorchDispatchMode):
    """Counts ATen calls by name, without views."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _NO_KERNEL:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def floor(net: Callable[[Tensor], Tensor], x: Tensor, loss: Loss, steps: int) -> Call:
    """K forward passes and K backward passes to the input."""

    def call() -> Tensor:
        g = x
        for _ in range(steps):
            leaf = x.detach().requires_grad_()
            g = torch.autograd.grad(loss(net(leaf)), leaf)[0]
        return g

    return call


class Labelled(MinBest):
    """The attack with labels that are given, as the peers get them."""

    labels: Tensor

    def objective(self, x: Tensor, bound: Any) -> CrossEntropy:
        """The cross-entropy of the labels."""
        return CrossEntropy(self.labels)


def attack(how: Any, x: Tensor, low: float, high: float) -> Call:
    """This library's code path: a fresh context a call, as in the engine."""
    shape, budget = tuple(x.shape[1:]), Linf(EPS)
    space = torch.full(shape, low), torch.full(shape, high)
    keys = _KEY.expand(len(x)).clone()

    @torch.no_grad()
    def call() -> Tensor:
        return how(x, Context.around(x, budget, budget.box(x, *space), keys, space=space))

    return call


def ours(net: nn.Module, x: Tensor, labels: Tensor, whole: bool, steps: int = STEPS) -> Call:
    """MinBest, with the labels given unless it is the ``whole``."""
    shape, actions = tuple(x.shape[1:]), int(net(x[:1]).shape[-1])
    victim = from_module(net, spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(actions), "logits")
    how = (MinBest if whole else Labelled)(victim, steps=steps, step=1.0 if steps == 1 else STEP)
    if not whole:
        object.__setattr__(how, "labels", labels)
    return attack(how, x, 0.0, 1.0)


def contestants(case: Case, batch: int) -> tuple[dict[str, Call], dict[str, nn.Module], list[str]]:
    """Calls and networks by name, and the peers that are not installed."""
    torch.manual_seed(0)
    net = case.make().eval()
    frozen = copy.deepcopy(net).requires_grad_(False)
    x = torch.rand(batch, *case.shape)
    if case.attack == "max-diff":
        return _on_actor(net, frozen, x), {FLOOR: frozen, OURS: net}, []
    steps, labels = 1 if case.attack == "fgsm" else STEPS, net(x).argmax(1)
    calls = {FLOOR: floor(frozen, x, lambda params: functional.cross_entropy(params, labels, reduction="sum"), steps)}
    nets = {FLOOR: frozen}
    for name, whole in ((OURS, False), (WHOLE, True)):
        nets[name] = copy.deepcopy(net)
        calls[name] = ours(nets[name], x, labels, whole, steps)
    missing = []
    for name, make in PEERS.items():
        for suffix, kept in ((", weights frozen", True), ("", False)):
            nets[name + suffix] = copy.deepcopy(net).requires_grad_(not kept)
            try:
                calls[name + suffix] = make(nets[name + suffix], x, labels, steps)
            except ImportError as error:
                missing.append(f"{name}: {error}")
                break
    return calls, nets, missing


def _on_actor(policy: Any, frozen: Any, x: Tensor) -> dict[str, Call]:
    """MaxDiff on the actor of an SB3 policy, and its floor."""
    actor, victim = frozen.actor, from_sb3(policy)

    def net(x: Tensor) -> Tensor:
        latent = actor.latent_pi(x)
        return torch.cat([actor.mu(latent), actor.log_std(latent).clamp(-20, 2)], -1)

    distance = SquaredDistance(victim, victim.family.mode(net(x)))
    return {
        FLOOR: floor(net, x, lambda params: distance(params).sum(), STEPS),
        OURS: attack(MaxDiff(victim, steps=STEPS), x, -torch.inf, torch.inf),
    }


def measure(network: str, batch: int, rounds: int, least: float) -> tuple[list[dict[str, Any]], list[str]]:
    """One network and batch size: a row a contestant."""
    calls, nets, missing = contestants(CASES[network], batch)
    ends, counts, once = {}, {}, 0.0
    for name, call in calls.items():
        for _ in range(2):  # the second is warm; of a long one the first will do
            started = time.process_time()
            with Count() as count:
                ends[name] = torch.as_tensor(call())
            counts[name], took = count.calls, time.process_time() - started
            if took > 1.0:
                break
        once += max(least, took)
    seconds = interleave(calls, min(rounds, max(3, int(LONGEST / once))), least, warm=True)
    ratios, base = medians(seconds, FLOOR), sum(counts[FLOOR].values())
    rows = []
    for name in calls:
        kernels = sum(counts[name].values())
        agree = float((ends[name] - ends[OURS]).abs().le(1e-6).float().mean()) if name != FLOOR else None
        rows.append(
            {
                "network": network,
                "batch": batch,
                "contestant": name,
                "ratio": ratios[name],
                "milliseconds": 1000 * statistics.median(seconds[name]),
                "kernels": kernels,
                "kernel_ratio": kernels / base,
                "syncs": sum(counts[name][sync] for sync in _SYNCS),
                "weight_gradients": sum(p.grad is not None for p in nets[name].parameters()),
                "same_as_ours": agree,
                "machine": machine(),
            }
        )
    return rows, missing


def _measured(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, dict[str, Any]]]:
    """Rows by network and batch size, and then by contestant."""
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["network"], row["batch"]), {})[row["contestant"]] = row
    return found


def _best_peer(here: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    peers = [row for name, row in here.items() if name.split(",")[0] in PEERS]
    return min(peers, key=lambda row: row["ratio"], default=None)


def head(data: Data) -> str:
    """Which command made the page, on which machines, beside which releases of other libraries."""
    made = {**data, "machine": machines(data["rows"], "network"), "releases": data["peers"]}
    return f"{made_by(made)} {INTERLEAVED}, ratios within a round."


def body(data: Data) -> list[str]:
    """The section after its head."""
    lines = []
    for (network, batch), here in _measured(data["rows"]).items():
        own = here[WHOLE if CASES[network].attack == "fgsm" else OURS]
        peers = {name: [row["ratio"] for key, row in here.items() if key.split(",")[0] == name] for name in PEERS}
        best = [f"{min(ratios):.2f}" if ratios else "" for ratios in peers.values()]
        lines.append([network, batch, f"{own['milliseconds']:.3f}", f"{own['ratio']:.2f}", *best])
    header = ["network", "batch", "ours, ms", "ours, times the floor", *(f"{name}, times the floor" for name in PEERS)]
    about: dict[str, list[str]] = {}
    for name, case in CASES.items():
        about.setdefault((case.make.__doc__ or "").splitlines()[0].rstrip("."), []).append(name)
    networks = "; ".join(f"{', '.join(names)}: {said}" for said, names in about.items())
    return [*prose(__doc__), f"{networks}.", table(header, lines)]


@functools.cache
def way_of(network: str) -> str:
    """How the input gradient of a network is computed."""
    case = CASES[network]
    net = case.make().eval()
    if case.attack == "max-diff":
        victim = from_sb3(net)
    else:
        victim = from_module(net, spaces.Box(0.0, 1.0, case.shape, np.float32), spaces.Discrete(case.actions), "logits")
    if victim.layer_graph() is None:
        return "autograd"
    return "written out" if isinstance(victim.net, nn.Sequential) else "traced, written out"


def summary(rows: list[dict[str, Any]]) -> str:
    """The table of ``docs/performance.md``, a row a network."""
    found = _measured(rows)
    body = []
    for network in dict.fromkeys(network for network, _ in found):
        case = CASES[network]
        batches = {batch: here for (name, batch), here in found.items() if name == network}
        own = [here[WHOLE if case.attack == "fgsm" else OURS] for here in batches.values()]
        peers = [_best_peer(here) for here in batches.values()]
        about = re.split(r",| \(", (case.make.__doc__ or "").split("\n")[0].rstrip("."))[0].replace("``", "`")
        body.append(
            [
                about,
                case.attack,
                way_of(network),
                ", ".join(map(str, batches)),
                ", ".join(f"{row['ratio']:.2f}" for row in own),
                ", ".join(f"{row['ratio']:.2f}" for row in peers if row),
            ]
        )
    return table(["victim", "attack", "input gradient", "batch", "times the floor", "best other library"], body)


def fill_performance(data: Data, folder: Path) -> None:
    """Write the table in ``performance.md`` beside the folder, where there is one."""
    page = folder.parent / "performance.md"
    if page.exists():
        put(page, "attacks", summary(data["rows"]))


def measure_all(results: Results) -> None:
    """Measure the rows that are asked for; the others of the page stay."""
    given, data = results.given, results.data
    print(machine(), flush=True)
    rows: list[Data] = data.get("rows", [])
    for network, batch in ((name, batch) for name in given.only for batch in CASES[name].batches):
        if given.batches and batch not in given.batches:
            continue
        try:
            new, missing = measure(network, batch, given.rounds, given.least)
        except ImportError as error:
            print(f"{network} is not measured: {error}")
            continue
        rows = sorted([row for row in rows if (row["network"], row["batch"]) != (network, batch)] + new, key=_place)
        for row in new:
            print(
                f"{network:12} {batch:5d} {row['contestant']:38} {row['ratio']:6.2f} x floor {row['milliseconds']:9.3f}"
                f" ms {row['kernels']:5d} kernels {row['syncs']:3d} syncs {row['weight_gradients']:2d} weight "
                "gradients",
                flush=True,
            )
        data |= {"peers": releases(*PACKAGES), "missing": missing, "rows": rows}
        results.keep()


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return list(CASES).index(row["network"]), row["batch"]


PAGE = Page(
    "attacks",
    "Attacks beside their floor and other libraries",
    __doc__,
    measure_all,
    body,
    fill_performance,
    page="speed",
    options={
        **timing_options(21, 0.05),
        "--only": {"choices": [*CASES], "nargs": "+", "metavar": "NETWORK", "default": [*CASES]},
        "--batches": {"type": int, "nargs": "+", "help": "these batch sizes alone, of those that a network has"},
    },
    partly=["--rounds", "--least", "--only", "--batches"],
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
