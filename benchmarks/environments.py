"""Forty ways in which people's environments misbehave, each evaluated, wrapped, reported and run on the command line.

Every cell is a result, a sentence (an error of this package, which says what was expected and what helps) or, of an
environment that is wrapped and stepped by its owner, the environment's own error. Anything else, or more than
``--seconds``, is a failure, and the exit code is 1 then.

    python benchmarks/environments.py                         # all of the table
    python benchmarks/environments.py --only "reset" --ways evaluate,wrap
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

import adv_wrappers as adv

THREAT = "noise:eps=0.1"
STEPS = 20  # of an episode
BOX, TWO = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)


class Own(Exception):
    """What an environment raises itself."""


class Well(gym.Env[Any, Any]):
    """An environment that behaves; the others differ from it in one thing."""

    observation_space, action_space = BOX, TWO

    def show(self) -> Any:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.show(), float(action), self.t >= STEPS, False, {}


def resets(answer: Callable[[Well, Any], Any]) -> type[Well]:
    """One whose reset returns something made of its observation."""

    class Resets(Well):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return answer(self, super().reset(seed=seed)[0])

    return Resets


def steps(answer: Callable[..., Any]) -> type[Well]:
    """One whose step returns something made of what it should."""

    class Steps(Well):
        def step(self, action: Any) -> Any:
            return answer(*super().step(action))

    return Steps


def shows(observation: Callable[[Any, int], Any]) -> type[Well]:
    """One whose observations are made of what they should be, and of the step."""

    class Shows(Well):
        def show(self) -> Any:
            return observation(super().show(), self.t)

    return Shows


class _NoOptions(Well):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class _NoSeed(Well):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class _NoReset(Well):
    reset = None  # type: ignore[assignment]


class _NoObservationSpace(Well):
    observation_space = None  # type: ignore[assignment]


class _NoActionSpace(Well):
    action_space = 2  # type: ignore[assignment]


class _NoGymnasium:
    observation_space, action_space = BOX, TWO
    reset, step = Well.reset, Well.step


class _Unmade(Well):
    def __init__(self) -> None:
        raise Own("no simulator here")


class _OnlyOne(Well):
    running: _OnlyOne | None = None

    def __init__(self) -> None:
        if _OnlyOne.running is not None:
            raise Own("the port is taken")
        _OnlyOne.running = self

    def close(self) -> None:
        _OnlyOne.running = None


class _Raises(Well):
    def step(self, action: Any) -> Any:
        if self.t == 5:
            raise Own("a joint is stuck")
        return super().step(action)


class _RaisesAtReset(Well):
    def reset(self, **given: Any) -> Any:
        raise Own("no map")


class _Global(Well):
    def show(self) -> Any:
        return np.random.uniform(-1, 1, 4).astype(np.float32)

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, random.random(), *rest


class _OverEpisodes(Well):
    resets = 0

    def reset(self, **given: Any) -> Any:
        obs, info = super().reset(**given)
        self.resets += 1
        return (obs / self.resets).astype(np.float32), info


class _Endless(Well):
    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class _Buffer(Well):
    def show(self) -> Any:
        self.buffer = getattr(self, "buffer", np.zeros(4, np.float32))
        self.buffer[:] = super().show()
        return self.buffer


class _OnlyIntegers(Well):
    def step(self, action: Any) -> Any:
        if type(action) is not int:
            raise Own(f"expected an int, got {type(action).__name__}")
        return super().step(action)


_SHARED = Well()

MISBEHAVIOURS: dict[str, Callable[[], Any]] = {
    "reset takes no options": _NoOptions,
    "reset takes no seed": _NoSeed,
    "reset is missing": _NoReset,
    "reset raises": _RaisesAtReset,
    "reset returns the observation alone": resets(lambda env, obs: obs),
    "reset returns None": resets(lambda env, obs: None),
    "reset returns three values": resets(lambda env, obs: (obs, {}, 0)),
    "reset returns None as info": resets(lambda env, obs: (obs, None)),
    "step raises": _Raises,
    "step returns four values": steps(lambda obs, reward, over, cut, info: (obs, reward, over or cut, info)),
    "step returns three values": steps(lambda obs, reward, over, cut, info: (obs, reward, over)),
    "step returns None": steps(lambda *answer: None),
    "step takes nothing but an int": _OnlyIntegers,
    "a reward in an array of one": steps(lambda obs, reward, *rest: (obs, np.array([reward]), *rest)),
    "a reward of None": steps(lambda obs, reward, *rest: (obs, None, *rest)),
    "a reward that is a text": steps(lambda obs, reward, *rest: (obs, "1.5", *rest)),
    "a reward that is not finite": steps(lambda obs, reward, *rest: (obs, float("nan"), *rest)),
    "a reward that is complex": steps(lambda obs, reward, *rest: (obs, 1j, *rest)),
    "a reward that is a tensor": steps(lambda obs, reward, *rest: (obs, torch.tensor(reward), *rest)),
    "terminated is nan": steps(lambda obs, reward, over, *rest: (obs, reward, float("nan"), *rest)),
    "terminated is None": steps(lambda obs, reward, over, *rest: (obs, reward, over or None, *rest)),
    "truncated is an array of one": steps(lambda obs, reward, over, cut, info: (obs, reward, over, [cut], info)),
    "info is None": steps(lambda *answer: (*answer[:4], None)),
    "an observation of None": shows(lambda obs, t: None),
    "an observation of objects": shows(lambda obs, t: obs.astype(object)),
    "an observation that is a text": shows(lambda obs, t: "left"),
    "an observation that is a dictionary": shows(lambda obs, t: {"position": obs}),
    "an observation of another shape": shows(lambda obs, t: obs[:3]),
    "a shape that changes": shows(lambda obs, t: obs if t < 10 else obs[:3]),
    "an observation that is not finite": shows(lambda obs, t: obs if t < 10 else obs * np.nan),
    "float64 where float32 is declared": shows(lambda obs, t: obs.astype(np.float64)),
    "an observation outside of its space": shows(lambda obs, t: obs * 9),
    "an observation in a list": shows(lambda obs, t: obs.tolist()),
    "an observation in one buffer": _Buffer,
    "no observation_space": _NoObservationSpace,
    "no action_space": _NoActionSpace,
    "no gymnasium.Env": _NoGymnasium,
    "a vector of SB3": lambda: DummyVecEnv([Well]),
    "a vector of Gymnasium": lambda: gym.vector.SyncVectorEnv([Well]),
    "nothing is made": lambda: None,
    "the same one is made": lambda: _SHARED,
    "it cannot be made": _Unmade,
    "only one can be made": _OnlyOne,
    "global random numbers": _Global,
    "a state over episodes": _OverEpisodes,
    "an episode that never ends": _Endless,
}
RESULT, SENTENCE, OWN = "result", "sentence", "its own error"
WAYS = ("evaluate", "wrap", "report", "command line")


def make(name: str) -> Any:
    """What the command line makes by ``--make environments:make``."""
    return MISBEHAVIOURS[name]()


def victim() -> adv.Victim:
    """A victim for all of them."""
    torch.manual_seed(0)
    return adv.from_module(torch.nn.Sequential(torch.nn.Linear(4, 2)), BOX, TWO, "logits")


def evaluated(name: str, agent: adv.Victim, folder: Path) -> str:
    """One cell of ``evaluate``."""
    adv.evaluate(agent, MISBEHAVIOURS[name], [THREAT], episodes=2)
    return RESULT


def wrapped(name: str, agent: adv.Victim, folder: Path) -> str:
    """One cell of ``wrap``: its owner makes it, and steps it for an episode and a half."""
    try:
        made = MISBEHAVIOURS[name]()
    except Own:
        return OWN
    env = adv.wrap(made, THREAT)
    many = hasattr(env, "num_envs")
    try:
        env.reset()
        for _ in range(STEPS + STEPS // 2):
            answer = env.step(np.zeros(1, int) if many else np.int64(0))
            if not many and (answer[2] or answer[3]):
                env.reset()
    except Own:
        return OWN
    return RESULT


def reported(name: str, agent: adv.Victim, folder: Path) -> str:
    """One cell of ``report``, of the least time that it takes."""
    adv.report(agent, MISBEHAVIOURS[name], minutes=0.02, out=folder / "report", tell=None)
    return RESULT


def commanded(name: str, agent: adv.Victim, folder: Path) -> str:
    """One cell of the command line: a result, or one line and the exit code 2."""
    from click.testing import CliRunner

    from adv_wrappers.cli import main

    adv.save_card(folder / "card", agent, environment=name)
    words = ["evaluate", name, "--victim", f"card:{folder / 'card'}", "--make", "environments:make"]
    done = CliRunner().invoke(main, [*words, "--threat", THREAT, "--episodes", "2"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in (0, 2) or (done.exit_code == 2 and "Error: " not in done.output):
        raise RuntimeError(f"exit code {done.exit_code}: {done.output[-200:]}")
    return SENTENCE if done.exit_code else RESULT


_PLAY = dict(zip(WAYS, (evaluated, wrapped, reported, commanded), strict=True))


class Late(BaseException):
    """A cell that took too long."""


@contextlib.contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """:class:`Late` once so many seconds have passed."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cell(name: str, way: str, agent: adv.Victim, seconds: float = 1e6) -> tuple[str, str]:
    """What became of a misbehaviour: ``result``, ``sentence``, ``its own error`` or a failure, and what was said."""
    _OnlyOne.running = None
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        try:
            with ends_after(seconds), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _PLAY[way](name, agent, Path(folder)), ""
        except adv.AdvWrappersError as error:
            return SENTENCE, str(error)
        except Late:
            return f"FAILED: more than {seconds:g} s", ""
        except Exception as error:
            return f"FAILED: {type(error).__name__}", str(error)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the name of some misbehaviours")
    parser.add_argument("--ways", default=",".join(WAYS), help="those that are tried")
    parser.add_argument("--seconds", type=float, default=5.0, help="that a cell may take")
    parser.add_argument("--say", action="store_true", help="print the sentences too")
    options = parser.parse_args()
    ways, agent, failed, longest = options.ways.split(","), victim(), 0, 0.0
    names = [name for name in MISBEHAVIOURS if options.only in name]
    width = max(map(len, names)) + 2
    print(f"{'':{width}}" + "".join(f"{way:<22}" for way in ways), flush=True)
    for way in ways:  # what the first call imports is not the price of a cell
        adv_cell = "an observation in a list"
        cell(adv_cell, way, agent)
    for name in names:
        found = []
        for way in ways:
            began = time.perf_counter()
            found.append(cell(name, way, agent, options.seconds))
            longest = max(longest, time.perf_counter() - began)
        failed += sum(what.startswith("FAILED") for what, _ in found)
        print(f"{name:{width}}" + "".join(f"{what:<22}" for what, _ in found), flush=True)
        for what, said in dict.fromkeys(found):
            if said and (options.say or what.startswith("FAILED")):
                print(f"    {what}: {said[:300]}")
    print(f"{len(names)} misbehaviours, {len(ways)} ways, {failed} failures, the longest cell {longest:.1f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
