"""PGD-10 against the floor and against other libraries, on one thread, interleaved in one run.

    python benchmarks/attacks.py

The floor of a K-step attack is K forward passes and K backward passes to the input alone, weights frozen, by autograd,
and nothing else: no step is taken. Every contestant gets the labels, starts at the clean point (no random start) and
takes 10 steps of a quarter of eps in the l-infinity ball, within [0, 1]. Ours is the code that a wrapper runs, the
attack ``MinBest`` with the labels put in; a second row is ``MinBest`` as it is, which finds the labels itself with one
more forward pass. Peers get the same module twice: as it comes, and
with its weights frozen, which their own documentation does not ask for. Foolbox is called through ``run`` and so is
spared the success check after the attack; ART takes and returns numpy arrays.

Kernels are ATen calls below autograd, views, ``detach`` and bare allocations left out, counted alike for all. A host
sync is a call of ``_local_scalar_dense`` or ``nonzero``.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from timing import command, interleave, machine, medians, save, table, write
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers import Linf, MinBest, from_module
from adv_wrappers.attacks.objectives import CrossEntropy
from adv_wrappers.core.context import Context

STEPS, EPS, STEP, ACTIONS = 10, 8 / 255, 0.25, 6
FLOOR, OURS, WHOLE = "floor", "adv_wrappers", "adv_wrappers, MinBest with its label"
GOALS = {("cnn", 1): 1.0, ("cnn", 8): 1.0, ("cnn", 64): 1.0, ("mlp", 1): 0.6, ("mlp", 64): 0.6, ("mlp", 1024): 0.75}
PEERS_BY = {"cnn": 1.0, "mlp": 2.0}  # how many times as fast as the best of them
KERNELS = 1.05
_KEY = torch.zeros(1, dtype=torch.int64)  # nothing is drawn here
_NO_KERNEL = (
    "detach", "alias", "_unsafe_view", "_reshape_alias", "view", "t", "unsqueeze", "squeeze", "expand", "empty",
    "empty_like", "new_empty",
)  # fmt: skip
_SYNCS = ("_local_scalar_dense", "nonzero")

Call = Callable[[], Any]


def cnn() -> nn.Module:
    """The network of Mnih et al. 2015 on 4x84x84."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS),
    )  # fmt: skip


def mlp() -> nn.Module:
    """17-64-64-6 with tanh."""
    return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ACTIONS))


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


def floor(net: nn.Module, x: Tensor, labels: Tensor) -> Call:
    """K forward passes and K backward passes to the input."""

    def call() -> Tensor:
        g = x
        for _ in range(STEPS):
            leaf = x.detach().requires_grad_()
            g = torch.autograd.grad(functional.cross_entropy(net(leaf), labels, reduction="sum"), leaf)[0]
        return g

    return call


class Labelled(MinBest):
    """The attack with labels that are given, as the peers get them."""

    labels: Tensor

    def objective(self, x: Tensor, bound: Any) -> CrossEntropy:
        """The cross-entropy of the labels."""
        return CrossEntropy(self.labels)


def ours(net: nn.Module, x: Tensor, labels: Tensor, whole: bool) -> Call:
    """This library's code path: a fresh context a call, as in the engine."""
    shape = tuple(x.shape[1:])
    victim = from_module(net, spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(ACTIONS), "logits")
    budget = Linf(EPS)
    space = (torch.zeros(shape), torch.ones(shape))
    how = (MinBest if whole else Labelled)(victim, steps=STEPS, step=STEP)
    if not whole:
        object.__setattr__(how, "labels", labels)

    def context() -> Context:
        low, high = budget.box(x, *space)
        return Context.around(x, budget, (low, high), _KEY, space=space)

    @torch.no_grad()
    def call() -> Tensor:
        return how(x, context())

    return call


def torchattacks(net: nn.Module, x: Tensor, labels: Tensor) -> Call:
    """``torchattacks.PGD``."""
    from torchattacks import PGD

    attack = PGD(net, eps=EPS, alpha=STEP * EPS, steps=STEPS, random_start=False)
    return lambda: attack(x, labels)


def foolbox(net: nn.Module, x: Tensor, labels: Tensor) -> Call:
    """``foolbox.attacks.LinfPGD``."""
    import foolbox as fb

    model = fb.PyTorchModel(net.eval(), bounds=(0, 1))
    attack = fb.attacks.LinfPGD(abs_stepsize=STEP * EPS, steps=STEPS, random_start=False)
    criterion = fb.criteria.Misclassification(labels)
    return lambda: attack.run(model, x, criterion, epsilon=EPS)


def art(net: nn.Module, x: Tensor, labels: Tensor) -> Call:
    """``art.attacks.evasion.ProjectedGradientDescentPyTorch``."""
    from art.attacks.evasion.projected_gradient_descent.projected_gradient_descent_pytorch import (
        ProjectedGradientDescentPyTorch,
    )
    from art.estimators.classification.pytorch import PyTorchClassifier

    model = PyTorchClassifier(
        net, nn.CrossEntropyLoss(), tuple(x.shape[1:]), ACTIONS, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack = ProjectedGradientDescentPyTorch(
        model, eps=EPS, eps_step=STEP * EPS, max_iter=STEPS, num_random_init=0, batch_size=len(x), verbose=False
    )
    array, targets = x.numpy(), labels.numpy()
    return lambda: attack.generate(array, targets)


PEERS = {"torchattacks": torchattacks, "foolbox": foolbox, "ART": art}
PACKAGES = ("torchattacks", "foolbox", "adversarial-robustness-toolbox")


def versions() -> str:
    """Names and versions of the peers that are installed."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def contestants(kind: str, batch: int) -> tuple[dict[str, Call], dict[str, nn.Module], list[str]]:
    """Calls and networks by name, and the peers that are not installed."""
    torch.manual_seed(0)
    net = {"cnn": cnn, "mlp": mlp}[kind]().eval()
    frozen = copy.deepcopy(net).requires_grad_(False)
    x = torch.rand(batch, *((4, 84, 84) if kind == "cnn" else (17,)))
    labels = net(x).argmax(1)
    calls, nets = {FLOOR: floor(frozen, x, labels)}, {FLOOR: frozen}
    for name, whole in ((OURS, False), (WHOLE, True)):
        nets[name] = copy.deepcopy(net)
        calls[name] = ours(nets[name], x, labels, whole)
    missing = []
    for name, make in PEERS.items():
        for suffix, kept in ((", weights frozen", True), ("", False)):
            nets[name + suffix] = copy.deepcopy(net).requires_grad_(not kept)
            try:
                calls[name + suffix] = make(nets[name + suffix], x, labels)
            except ImportError as error:
                missing.append(f"{name}: {error}")
                break
    return calls, nets, missing


def measure(kind: str, batch: int, rounds: int, least: float) -> tuple[list[dict[str, Any]], list[str]]:
    """One network and batch size: a row a contestant."""
    calls, nets, missing = contestants(kind, batch)
    ends, counts = {}, {}
    for name, call in calls.items():
        call()  # warm
        ends[name] = torch.as_tensor(call())
        with Count() as count:
            call()
        counts[name] = count.calls
    seconds = interleave(calls, rounds, least)
    ratios, base = medians(seconds, FLOOR), sum(counts[FLOOR].values())
    rows = []
    for name in calls:
        kernels = sum(counts[name].values())
        agree = float((ends[name] - ends[OURS]).abs().le(1e-6).float().mean()) if name != FLOOR else None
        rows.append({
            "network": kind, "batch": batch, "contestant": name, "ratio": ratios[name],
            "milliseconds": 1000 * statistics.median(seconds[name]), "kernels": kernels, "kernel_ratio": kernels / base,
            "syncs": sum(counts[name][sync] for sync in _SYNCS),
            "weight_gradients": sum(p.grad is not None for p in nets[name].parameters()), "same_as_ours": agree,
        })  # fmt: skip
    return rows, missing


def goals(rows: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """What was wanted, what was measured and whether it was met."""
    found = []
    for kind, batch in dict.fromkeys((row["network"], row["batch"]) for row in rows):
        here = {row["contestant"]: row for row in rows if (row["network"], row["batch"]) == (kind, batch)}
        own, where = here[OURS], f"{kind}, batch {batch}"
        most = GOALS[kind, batch]
        found.append((f"{where}: at most {most} times the floor", f"{own['ratio']:.2f}", own["ratio"] <= most))
        peers = {name: row["ratio"] for name, row in here.items() if name.split(",")[0] in PEERS}
        if peers:
            best = min(peers, key=lambda name: peers[name])
            text = f"{own['ratio']:.2f} against {peers[best]:.2f} ({best})"
            by = peers[best] / own["ratio"]
            goal = f"{where}: {PEERS_BY[kind]:g} times as fast as the best peer"
            found.append((goal, f"{by:.2f} times: {text}", by >= PEERS_BY[kind]))
        kernels = own["kernel_ratio"]
        found.append((f"{where}: at most {KERNELS} times the floor's kernels", f"{kernels:.2f}", kernels <= KERNELS))
        clean = own["syncs"] == own["weight_gradients"] == 0
        text = f"{own['syncs']} and {own['weight_gradients']}"
        found.append((f"{where}: no host sync, no gradient of a weight", text, clean))
    return found


def markdown(rows: list[dict[str, Any]], missing: list[str], line: str) -> str:
    """The whole page."""
    wanted = goals(rows)
    header = [
        "network", "batch", "contestant", "times the floor", "ms", "kernels (times the floor)", "host syncs",
        "weights with gradients", "elements equal to ours",
    ]  # fmt: skip
    body = [
        [
            r["network"], r["batch"], r["contestant"], f"{r['ratio']:.2f}", f"{r['milliseconds']:.3f}",
            f"{r['kernels']} ({r['kernel_ratio']:.2f})", r["syncs"], r["weight_gradients"],
            "" if r["same_as_ours"] is None else f"{r['same_as_ours']:.2%}",
        ]
        for r in rows
    ]  # fmt: skip
    text = [part.strip().replace("\n", " ") for part in (__doc__ or "").split("\n\n")[2:]]
    parts = [
        "# PGD-10 beside its floor and other libraries",
        f"Made by `{line}`\n\non {machine()}; {versions()}. Processor time, medians over the rounds of one "
        "interleaved run, ratios within a round.",
        *text,
        "## Goals\n\n" + table(["goal", "measured", "met"], [(a, b, "yes" if c else "**no**") for a, b, c in wanted]),
        "## All contestants\n\n" + table(header, body),
    ]
    if missing:
        parts.append("Not installed, so not measured: " + "; ".join(missing))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--least", type=float, default=0.05, help="seconds a timing lasts at least")
    parser.add_argument("--only", choices=["cnn", "mlp"])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    line = command(sys.argv[1:])
    print(line)
    print(machine(), flush=True)
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for kind, batches in (("mlp", (1, 64, 1024)), ("cnn", (1, 8, 64))):
        for batch in batches if arguments.only in (None, kind) else ():
            new, missing = measure(kind, batch, arguments.rounds, arguments.least)
            rows += new
            for row in new:
                print(
                    f"{kind} {batch:5d} {row['contestant']:38} {row['ratio']:6.2f} x floor {row['milliseconds']:9.3f} "
                    f"ms {row['kernels']:5d} kernels {row['syncs']:3d} syncs {row['weight_gradients']:2d} weight "
                    f"gradients",
                    flush=True,
                )
    for goal, text, met in goals(rows):
        print(f"{'met   ' if met else 'MISSED'} {goal}: {text}")
    if missing:
        print("not installed:", "; ".join(missing))
    save(arguments.out / "attacks.json", {"command": line, "machine": machine(), "peers": versions(), "rows": rows})
    write(arguments.out / "attacks.md", markdown(rows, missing, line))
    print(f"wrote {arguments.out / 'attacks.md'}")


if __name__ == "__main__":
    main()
