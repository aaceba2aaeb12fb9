"""alpha-CROWN: how much tighter optimised lines are than CROWN's, whether they are sound, and what they certify.

    python benchmarks/reproduce/alpha_crown.py

Of 20 networks, random ones, trained ones and cards of the zoo, all outputs and all differences of two are bounded in 8
boxes: by CROWN with linear bounds on hidden neurons too (`crown(..., intermediate="crown")`), and with lines that are
optimised for every bound by itself in 20 steps (`refine=20`, alpha-CROWN, Xu et al. 2021). `looser` counts bounds that
the optimisation makes looser by more than rounding (1e-9 of their size), `tighter` those that it makes tighter, and
`width` is the mean width of the refined bounds by that of CROWN's; `interval hidden` has the same of both with interval
bounds on hidden neurons. Then 250,000 points of the boxes of each network, a fifth of them corners, and 40 steps of
projected gradient ascent on every bound look for a value outside: `outside` counts those, and `reached` is the mean
width of what they found, by that of the refined bounds. All of it is in float64.

Certified returns of CartPole are `lower` of `adv.certify`, of the first episode of seed 0, whole or cut to 15 steps,
in the same seconds of a processor for both methods, one after the other: `crown`, and `refined`, which goes on to
tighter bounds where cheaper ones leave a box open. Agents without `zoo:` are those of the measured defences.

Which outputs can be the largest in a box of pictures is decided by `decide` of `adv_wrappers.bounds.branch_and_bound`,
by splitting the box (`inputs`) and by splitting on neurons that may be on or off (`neurons`, beta-CROWN, Wang et al.
2021), at most 200 cases for an output, of the small network of convolutions with random weights and another one that
learned to tell three patterns under noise, in 16 boxes of 100 pixels each. The limit on boxes is doubled until
splitting them takes as many seconds of a processor as splitting on neurons, or leaves nothing more to split. Of the 48
outputs `found` are the largest at some point, and so are possible; `undecided` ones are neither found nor excluded;
`crown` and `refined` have what their bounds leave, with the same points.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from figures import table
from page import Data, Page, Results, prose
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.bounds import crown
from adv_wrappers.bounds.branch_and_bound import decide
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.utils import deadline
from adv_wrappers.victims.possible_actions import params_network

BOXES, POINTS, STEPS, REFINE = 8, 250_000, 40, 20
ROUNDING = 1e-9
CARDS = {
    "cartpole-dqn": 0.02, "cartpole-a2c": 0.02, "cartpole-ppo": 0.02, "cartpole-radial-dqn": 0.05,
    "cartpole-radial-ppo": 0.05, "mountaincar-dqn": 0.01, "hopper-ppo": 0.02, "walker2d-ppo": 0.02,
}  # fmt: skip
RETURNS = ("zoo:cartpole-dqn", "zoo:cartpole-radial-dqn", "zoo:cartpole-ppo")
RETURNS_EPS = (0.01, 0.05, 0.1)
CUT = 15  # steps of episodes that are cut
# agents of the measured defences
DEFENDED = ("zoo:cartpole-radial-ppo", "cartpole-sa-ppo-s0", "cartpole-radial-ppo-s0", "cartpole-wocar-ppo-s0",
            "cartpole-radial-dqn-s0", "cartpole-sa-dqn-s0")  # fmt: skip
CASES_OF_RETURNS = [
    *((ref, eps, 500) for ref in RETURNS for eps in RETURNS_EPS),
    *((ref, RETURNS_EPS[1], 500) for ref in DEFENDED),
    *((ref, eps, CUT) for ref in RETURNS for eps in RETURNS_EPS[1:]),
]
METHODS = ("crown", "refined")
PICTURES, CASES, RADII = 16, 200, (0.1, 0.15, 0.2)


def mlp(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Sequential:
    """A network with random weights."""
    layers = list[nn.Module]()
    for size, after in itertools.pairwise(sizes):
        layers += [nn.Linear(size, after), activation()]
    return nn.Sequential(*layers[:-1])


def trained(net: nn.Module, size: int, outputs: int) -> nn.Module:
    """A network that learned products of sines, one for every output."""
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    phases = torch.arange(outputs) / outputs
    for _ in range(400):
        x = 2 * torch.rand(256, size) - 1
        wanted = torch.sin(3 * x[:, :1] + 6 * phases) * torch.cos(3 * x[:, 1:2] + 6 * phases)
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x), wanted).backward()
        optimiser.step()
    return net


def conv() -> nn.Sequential:
    """A small network of pictures ``[1, 10, 10]``."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16), nn.ReLU(),
        nn.Linear(16, 3),
    )  # fmt: skip


def networks() -> Iterator[tuple[str, float, Callable[[], tuple[nn.Module, Tensor]]]]:
    """Names, radii, and what makes a network and the middles of its boxes."""

    def random(net: Callable[[], nn.Module], *shape: int) -> Callable[[], tuple[nn.Module, Tensor]]:
        return lambda: (net(), torch.randn(BOXES, *shape))

    for name, kind in (("relu", nn.ReLU), ("tanh", nn.Tanh)):
        for sizes, radius in (((4, 64, 64, 2), 0.1), ((8, 128, 128, 4), 0.05), ((17, 32, 32, 32, 6), 0.05)):
            text = "-".join(map(str, sizes))
            yield f"{text}, {name}, random", radius, random(lambda sizes=sizes, kind=kind: mlp(sizes, kind), sizes[0])
        for sizes in ((2, 64, 64, 2), (4, 32, 32, 3)):
            text = "-".join(map(str, sizes))
            yield (
                f"{text}, {name}, trained", 0.1,
                random(
                    lambda sizes=sizes, kind=kind: trained(mlp(sizes, kind), sizes[0], sizes[-1]), sizes[0]
                ),
            )  # fmt: skip
    yield "convolutions, random", 0.05, random(conv, 1, 10, 10)
    yield "convolutions, wider boxes, random", 0.2, random(conv, 1, 10, 10)
    for card, radius in CARDS.items():
        yield f"zoo:{card}", radius, lambda card=card: of_card(card)


def of_card(name: str) -> tuple[nn.Module, Tensor]:
    """The network of a card, and observations in units of what it sees."""
    victim = adv.load_victim(f"zoo:{name}")
    shape = victim.observation_space.shape or ()
    scale = 1.0 if victim.scale is None else victim.scale.float()
    return params_network(victim), 0.3 * torch.randn(BOXES, *shape) * scale


def combinations(count: int) -> Tensor:
    """All outputs and all differences of two, ``[M, K]``."""
    one = torch.eye(count, dtype=torch.float64)
    return torch.stack([*one, *(one[i] - one[j] for i, j in itertools.combinations(range(count), 2))])


def compared(make: Callable[[], tuple[nn.Module, Tensor]], radius: float) -> Data:
    """Bounds on one network."""
    torch.manual_seed(0)
    net, middle = make()
    net, middle = net.double().requires_grad_(False), middle.double()
    low, high = middle - radius, middle + radius
    spec = combinations(net(middle).shape[1])
    found: Data = {"bounds": 2 * BOXES * len(spec), "rounding": ROUNDING}
    for name, hidden in (("linear", "crown"), ("interval", "interval")):
        began = time.process_time()
        plain = crown(net, low, high, spec, hidden)  # type: ignore[arg-type]
        between = time.process_time()
        best = crown(net, low, high, spec, hidden, REFINE)  # type: ignore[arg-type]
        found[name] = {"seconds": between - began, "refined_seconds": time.process_time() - between}
        gain = torch.stack([best[0] - plain[0], plain[1] - best[1]])
        size = ROUNDING * (1 + torch.stack(plain).abs())
        found[name] |= {
            "looser": int((gain < -size).sum()), "tighter": int((gain > size).sum()),
            "width": float((best[1] - best[0]).mean() / (plain[1] - plain[0]).mean()),
        }  # fmt: skip
        if name == "linear":
            refined = best
    least, most = searched(net, low, high, spec)
    room = ROUNDING * (1 + torch.stack(refined).abs())
    found["outside"] = int((least < refined[0] - room[0]).sum() + (most > refined[1] + room[1]).sum())
    found["reached"] = float((most - least).mean() / (refined[1] - refined[0]).mean())
    return found


def searched(net: nn.Module, low: Tensor, high: Tensor, spec: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest values of combinations that points of boxes have, ``[B, M]`` twice."""
    least = torch.full((len(low), len(spec)), torch.inf, dtype=low.dtype)
    most = -least
    at_once = 1000
    for part in range(POINTS // (at_once * len(low)) + 1):
        share = torch.rand(at_once, *low.shape, dtype=low.dtype)
        share = share.round() if part % 5 == 0 else share
        values = (net((low + share * (high - low)).flatten(0, 1)) @ spec.T).view(at_once, len(low), -1)
        least, most = torch.minimum(least, values.amin(0)), torch.maximum(most, values.amax(0))
    signs = torch.tensor([1.0, -1.0], dtype=low.dtype).view(2, 1, 1, *[1] * (low.dim() - 1))
    x = ((low + high) / 2)[None, :, None].expand(2, len(low), len(spec), *low.shape[1:])
    for step in range(STEPS):
        at = x.flatten(0, 2).clone().requires_grad_()
        values = (net(at) @ spec.T).view(2, len(low), len(spec), len(spec)).diagonal(dim1=2, dim2=3)
        (slope,) = torch.autograd.grad(values.sum(), at)
        least, most = torch.minimum(least, values.detach().amin(0)), torch.maximum(most, values.detach().amax(0))
        reach = ((high - low) / 2)[None, :, None] * 2 ** (-step / 6)
        x = x + signs * reach * slope.view_as(x).sign()
        x = torch.minimum(torch.maximum(x, low[None, :, None]), high[None, :, None])
    return least, most


def returns(ref: str, eps: float, limit: int, method: Any, seconds: float, seed: int) -> Data:
    """The certified return of one episode of at most so many steps, in seconds of a processor."""
    ref = ref if ref.startswith("zoo:") else f"card:{Path(__file__).parent / 'defences' / ref}"
    settings = {} if limit == 500 else {"max_episode_steps": limit}
    with patch.object(deadline, "clock", time.process_time):
        found = adv.certify(ref, "CartPole-v1", eps, 1, seed, method, seconds, env_kwargs=settings)
    return {"lower": float(found.lower_returns[0]), "finished": bool(found.finished_searches[0])}


def patterns(net: nn.Module) -> tuple[nn.Module, Tensor]:
    """A network that learned to tell three patterns under noise, and pictures of them."""
    shown = torch.randn(3, 1, 10, 10)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(300):
        which = torch.randint(3, (64,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(0.5 * shown[which] + torch.randn(64, 1, 10, 10)), which).backward()
        optimiser.step()
    return net, 0.5 * shown[torch.arange(PICTURES) % 3] + torch.randn(PICTURES, 1, 10, 10)


def decided(learned: bool, radius: float) -> Data:
    """Outputs that are decided in boxes of pictures, by splitting on inputs and on neurons."""
    torch.manual_seed(0)
    net, x = patterns(conv()) if learned else (conv(), torch.randn(PICTURES, 1, 10, 10))
    net, x = net.double().requires_grad_(False), x.double()
    low, high = x - radius, x + radius
    began = time.process_time()
    neurons = decide(net, low, high, CASES, split="neurons")
    seconds = time.process_time() - began
    boxes, spent = 16, 0.0
    while spent < seconds:
        boxes, began = 2 * boxes, time.process_time()
        inputs = decide(net, low, high, boxes)
        spent = time.process_time() - began
        if not inputs.undecided.any() or boxes >= 2**20:
            break
    rows: Data = {"found": int((neurons.found | inputs.found).sum())}
    for name, one, took in (("neurons", neurons, seconds), ("inputs", inputs, spent)):
        rows[name] = {"undecided": int(one.undecided.sum()), "seconds": took, "boxes": int(one.boxes.sum())}
    rows["contradictions"] = int(((neurons.found & ~inputs.possible) | (inputs.found & ~neurons.possible)).sum())
    apart = difference_spec(net(x).argmax(1), 3, torch.float64)
    for name, steps in (("crown", 0), ("refined", REFINE)):
        possible = crown(net, low, high, apart, "crown", steps)[1] >= 0
        rows[name] = {"undecided": int((possible & ~neurons.found & ~inputs.found).sum())}
    return rows


def key_of(ref: str, eps: float, limit: int, method: str) -> str:
    """The name of a row of certified returns."""
    return f"{ref}, {eps:g}, {method}" + (f", {limit} steps" if limit != 500 else "")


def measure(results: Results) -> None:
    """Measure what is not there yet."""
    warnings.filterwarnings("ignore")
    rows = results.part("networks")
    for name, radius, make in networks():
        results.once(rows, name, compared, make, radius=radius)
    rows, seconds = results.part("returns"), results.given.seconds
    for case, method in itertools.product(CASES_OF_RETURNS, METHODS):
        results.once(rows, key_of(*case, method), returns, *case, method, seconds=seconds, seed=0)
    rows = results.part("decided")
    for learned, radius in itertools.product((False, True), RADII):
        results.once(rows, f"{'learned' if learned else 'random'}, {radius:g}", decided, learned, radius)


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows = data["networks"]
    kinds = ("linear", "interval")
    looser, tighter = (
        sum(row[kind][what] for row in rows.values() for kind in kinds) for what in ("looser", "tighter")
    )
    count, outside = 2 * sum(row["bounds"] for row in rows.values()), sum(row["outside"] for row in rows.values())
    lines = []
    for name, row in rows.items():
        one, other = row["linear"], row["interval"]
        lines.append(
            [
                name, f"{row['radius']:g}", row["bounds"], one["looser"], one["tighter"], f"{one['width']:.3f}",
                other["looser"], other["tighter"], f"{other['width']:.3f}", row["outside"], f"{row['reached']:.3f}",
                f"{one['seconds']:.2f}", f"{one['refined_seconds']:.2f}",
            ]
        )  # fmt: skip
    header = ["network", "radius", "bounds", "looser", "tighter", "width"]
    header += ["interval hidden: looser", "tighter", "width", "outside", "reached", "seconds", "seconds, refined"]
    parts = [
        *prose(__doc__),
        f"Of {count} bounds of {len(rows)} networks {looser} are looser than CROWN's, and {tighter} are tighter. "
        f"{outside} values lie outside.",
        "## Bounds",
        table(header, lines),
    ]
    known, lines = data.get("returns", {}), []
    for ref, eps, limit in CASES_OF_RETURNS:
        found = [known.get(key_of(ref, eps, limit, method)) for method in METHODS]
        if all(found):
            lines.append([f"`{ref}`", limit, f"{eps:g}", *(cell(row) for row in found)])
    if lines:
        parts += ["## Certified returns of CartPole", verdict(known), table(["agent", "steps", "eps", *METHODS], lines)]
    lines = []
    for name, row in data.get("decided", {}).items():
        left = [row[how]["undecided"] for how in ("crown", "refined", "inputs", "neurons")]
        took = [f"{row[how]['seconds']:.1f}" for how in ("inputs", "neurons")]
        lines.append([*name.split(", "), row["found"], *left, *took, row["inputs"]["boxes"], row["neurons"]["boxes"]])
    if lines:
        wrong = sum(row["contradictions"] for row in data["decided"].values())
        header = ["weights", "radius", "found", "undecided: crown", "refined", "inputs", "neurons"]
        header += ["seconds, inputs", "seconds, neurons", "boxes", "cases"]
        parts += [
            "## Splitting on neurons",
            f"In {wrong} cases one of the two excludes an output that the other finds.",
            table(header, lines),
        ]
    return parts


def cell(row: Data) -> str:
    """A certified return, marked where the search was finished."""
    return f"{row['lower']:g}" + (" (finished)" if row["finished"] else "")


def verdict(known: Data) -> str:
    """What the same seconds certify."""
    seconds, told = next(iter(known.values()))["seconds"], []
    for limit in (500, CUT):
        rows = [[known.get(key_of(*case, m)) for m in METHODS] for case in CASES_OF_RETURNS if case[2] == limit]
        measured = [[row["lower"] for row in pair] for pair in rows if all(pair)]
        if not measured:
            continue
        plain, refined = np.array(measured).T
        told.append(
            f"of {len(measured)} cases with episodes of {limit} steps more than `crown` in {(refined > plain).sum()}, "
            f"as much in {(refined == plain).sum()} and less in {(refined < plain).sum()}"
        )
    return (
        f"In {seconds:g} seconds of a processor `refined` certifies, {'; '.join(told)}. What a search certifies "
        f"depends on the number of boxes of states that it follows as well as on the tightness of each bound, and an "
        f"optimised one costs as much as some tens of plain ones. So the search over boxes begins with plain bounds, "
        f"and takes tighter ones where more boxes certify no more. Where more boxes do until the seconds are over, "
        f"`refined` goes no further than plain bounds, and what it certifies more or less is a matter of how many "
        f"boxes it follows in these seconds, which differs from run to run."
    )


PAGE = Page(
    "alpha_crown",
    "alpha-CROWN: optimised linear bounds",
    __doc__,
    measure,
    body,
    options={
        "--again": {"action": "store_true", "help": "measure also what an earlier run has left"},
        "--seconds": {"type": float, "default": 5.0, "help": "of a processor, for a certified return"},
    },
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.main()
