"""The greedy worst case beside the true one: Figure 2 of Oikarinen et al. 2020, on Pong and on short CartPole episodes.

    python benchmarks/reproduce/worst_case.py

On Pong an episode is its second point, as in the paper (appendix B): the agent plays the first one unattacked. AWC is
Algorithm 1, depth-first, which stops at 5000 sequences; searches that did not finish are counted, where the paper
leaves them out. On CartPole, cut to a few steps, every search finishes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from figures import table
from learning import STYLE
from page import Data, Page, Results, episode_options
from radial_paper import POINTS, POINTS_EPISODES

import adv_wrappers as adv
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, MUTED

SEQUENCES = 5000  # after which the paper stops a search
SECONDS = 30.0  # after which one stops here as well: a point may go on for long
CARTPOLE_STEPS = 12  # of an episode that is searched whole
CARTPOLE_EPS = (0.02, 0.05, 0.1)
CARTPOLE_AGENTS = ("zoo:cartpole-dqn", "zoo:cartpole-a2c", "zoo:cartpole-ppo")


class SecondPoint(gym.Wrapper[Any, Any, Any, Any]):
    """Pong's second point as an episode: the agent plays the first one when the game is reset.

    Args:
        env: Pong.
        victim: the agent.
    """

    def __init__(self, env: gym.Env[Any, Any], victim: adv.Victim) -> None:
        super().__init__(env)
        self.victim = victim

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation after the first point."""
        observation, info = self.env.reset(seed=seed, options=options)
        scored = 0.0
        while not scored:
            action = self.victim.act_on(np.asarray(observation)[None])[0]
            observation, reward, *_, info = self.env.step(action)
            scored = float(reward)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the game, which is over with the next point."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), bool(terminated or reward), truncated, info


def one_point(victim: adv.Victim) -> gym.Env[Any, Any]:
    """An environment of single points."""
    return SecondPoint(adv.atari.atari("PongNoFrameskip-v4"), victim)


def short_cartpole() -> gym.Env[Any, Any]:
    """CartPole, cut after a few steps."""
    return gym.make("CartPole-v1", max_episode_steps=CARTPOLE_STEPS)


def certified(
    victim: adv.Victim, env: Callable[[], gym.Env[Any, Any]], eps: float, episodes: int, seed: int, **limits: Any
) -> dict[str, Any]:
    """One row: every figure of every episode."""
    started = time.process_time()
    found = adv.certify(victim, env, eps, episodes, seed, order="depth-first", quantize=False, **limits).to_dict()
    names = (
        "method",
        "clean_returns",
        "gwc_returns",
        "awc_returns",
        "lowest_found",
        "lower_returns",
        "clean_acr",
        "finished_searches",
        "node_counts",
        "sequence_counts",
    )
    return {"eps": eps, **{name: found[name] for name in names}, "seconds": round(time.process_time() - started, 1)}


def won(returns: list[float | None], among: list[bool]) -> str:
    """The share of +1 among some episodes, and their number."""
    chosen = [value for value, counts in zip(returns, among, strict=True) if counts]
    return f"{sum(value == 1 for value in chosen)}/{len(chosen)}" if chosen else ""


def compared(row: dict[str, Any]) -> tuple[int, int, float]:
    """Of the finished searches: how many, in how many GWC is above AWC, and the largest such difference."""
    pairs = [
        (gwc, awc)
        for gwc, awc, finished in zip(row["gwc_returns"], row["awc_returns"], row["finished_searches"], strict=True)
        if finished
    ]
    return len(pairs), sum(gwc > awc for gwc, awc in pairs), max((gwc - awc for gwc, awc in pairs), default=0.0)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Figure 2: shares of +1 by GWC and AWC, and ACR, over eps."""
    eps, finished = [row["eps"] for row in rows], [row["finished_searches"] for row in rows]
    everyone = [[True] * len(known) for known in finished]

    def share(name: str, among: list[list[bool]]) -> list[float]:
        out = []
        for row, chosen in zip(rows, among, strict=True):
            values = [value == 1 for value, counts in zip(row[name], chosen, strict=True) if counts]
            out.append(100 * float(np.mean(values)) if values else float("nan"))
        return out

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        axes.plot(eps, share("clean_returns", everyone), color=MUTED, lw=1.5, ls=":", label="no attack, +1")
        axes.plot(eps, share("gwc_returns", everyone), color=ATTACKED, lw=6, alpha=0.5, marker="o", label="GWC, +1")
        axes.plot(eps, share("awc_returns", finished), color=CLEAN, lw=2.5, marker="s", label="AWC, +1, of finished")
        unfinished = [100 * (1 - float(np.mean(known))) for known in finished]
        axes.plot(eps, unfinished, color="#b45309", lw=1.5, ls="--", marker="x", label="searches unfinished")
        axes.plot(
            eps,
            [100 * float(np.mean(row["clean_acr"])) for row in rows],
            color="#0f766e",
            lw=2.5,
            marker="^",
            label="ACR",
        )
        axes.set(xlabel="eps, in grey levels", ylabel="%", ylim=(-3, 103))
        axes.legend(frameon=False)
        figure.savefig(path, dpi=120)
        plt.close(figure)


def paper_rows() -> list[list[str]]:
    """What the paper says of its own agent, as rows of the table of Pong."""
    lines = []
    for point in POINTS:
        share = "-" if point.won is None else f"{point.won}/{point.finished}"
        acr = "-" if point.acr is None else f"{point.acr:.3f}"
        open_searches = f"{POINTS_EPISODES - point.finished}/{POINTS_EPISODES}"
        gwc = share if point.finished == POINTS_EPISODES else "-"
        about = [gwc, share, open_searches, f"0/{point.finished}", acr, "-", "-"]
        lines.append(["the paper's RADIAL-A3C", f"{point.eps:g}", "-", *about])
    return lines


def body(data: Data) -> list[str]:
    """The page after its head."""
    pong = data["pong"]["rows"]
    lines = []
    for row in pong:
        finished, differ, _ = compared(row)
        count = len(row["clean_acr"])
        lines.append(
            [
                data["pong"]["agent"],
                f"{row['eps']:g}",
                won(row["clean_returns"], [True] * count),
                won(row["gwc_returns"], [True] * count),
                won(row["awc_returns"], row["finished_searches"]),
                f"{count - finished}/{count}",
                f"{differ}/{finished}",
                f"{np.mean(row['clean_acr']):.3f}",
                f"{np.mean(row['node_counts']):.0f}",
                f"{row['seconds']:.0f}",
            ]
        )
    lines += paper_rows()
    header = [
        "agent",
        "eps",
        "clean +1",
        "GWC +1",
        "AWC +1, of finished",
        "unfinished",
        "GWC above AWC, of finished",
        "ACR",
        "steps a search",
        "seconds",
    ]
    short = []
    for name, rows in data["cartpole"].items():
        for row in rows:
            finished, differ, most = compared(row)
            known = np.array(row["finished_searches"])
            awc = np.array([np.nan if value is None else value for value in row["awc_returns"]])[known]
            short.append(
                [
                    name,
                    f"{row['eps']:g}",
                    f"{np.mean(row['gwc_returns']):.1f}",
                    f"{awc.mean():.1f}" if len(awc) else "",
                    f"{len(known) - finished}/{len(known)}",
                    f"{differ}/{finished}",
                    f"{most:g}",
                    f"{np.mean(row['clean_acr']):.2f}",
                ]
            )
    return [
        "GWC (Algorithm 2) follows the worst of the possible actions at every step, AWC (Algorithm 1) every sequence "
        "of them; a bound where its search finishes. On Pong a search stops after "
        f"{SEQUENCES} sequences or {SECONDS:.0f} seconds.",
        f"Pong, one point an episode, {data['pong']['agent']}, bounds by `{pong[0]['method']}`, eps in grey levels, "
        f"{len(pong[0]['clean_acr'])} episodes. The paper's rows are what section 4.3 says of its Figure 2, eps read "
        "as grey levels; its agent sees one frame, so at which eps points begin to be lost cannot be compared.",
        table(header, lines),
        "![shares of points won over eps](worst_case.png)",
        f"CartPole, {CARTPOLE_STEPS} steps an episode, eps in raw units, bounds by `crown`:",
        table(
            ["agent", "eps", "GWC", "AWC", "unfinished", "GWC above AWC, of finished", "largest difference", "ACR"],
            short,
        ),
    ]


def measure(results: Results) -> None:
    """Measure what is missing."""
    given, data = results.given, results.data
    victim = adv.load_victim(given.agent)
    about = {"agent": given.agent if given.agent.startswith("zoo:") else str((victim.card or {}).get("name"))}
    about |= {"fingerprint": victim.fingerprint(), "episodes": given.episodes, "seed": given.seed}
    old = data.get("pong", {})
    if {name: old.get(name) for name in about} != about:  # rows of another agent, or of other episodes
        data["pong"] = {**about, "rows": []}
    whole = {"budget_s": None, "max_sequences": None, "max_nodes": 20_000}
    for name in CARTPOLE_AGENTS:
        rows = results.part("cartpole").setdefault(name, [])
        for eps in missing(rows, CARTPOLE_EPS):
            agent = adv.load_victim(name)
            rows.append(certified(agent, short_cartpole, eps, given.episodes, given.seed, **whole))
            results.keep()
    limits = {"budget_s": SECONDS, "max_sequences": SEQUENCES, "max_nodes": None, "least_return": -1.0}
    rows = data["pong"]["rows"]
    for eps in missing(rows, given.eps):
        env = functools.partial(one_point, victim)
        rows.append(certified(victim, env, eps, given.episodes, given.seed, method=given.method, **limits))
        rows.sort(key=lambda row: float(row["eps"]))
        results.keep()


def missing(rows: list[dict[str, Any]], wanted: Sequence[float]) -> list[float]:
    """The eps that no row is of."""
    return [eps for eps in wanted if eps not in [row["eps"] for row in rows]]


PAGE = Page(
    "worst_case",
    "The greedy worst case and the true one",
    __doc__,
    measure,
    body,
    lambda data, folder: draw(data["pong"]["rows"], folder / "worst_case.png"),
    page="radial",
    options={
        "--agent": {"default": "zoo:pong-radial-ppo", "help": "a hardened agent of Pong"},
        "--eps": {"type": float, "nargs": "+", "default": [0.5, 1.0, 1.25, 1.5], "help": "in grey levels"},
        "--method": {"default": "interval", "help": "of the bounds on Pong"},
        **episode_options(20),
    },
    releases=["ale-py"],
)


if __name__ == "__main__":
    PAGE.main()
