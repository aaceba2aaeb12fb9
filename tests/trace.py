"""What travels where: the Python calls inside adv_wrappers of one step, and of wrapping.

A reader follows calls from file to file, so their number says how long the way is. Three routes are traced on CartPole:
a ``step`` under noise, a ``step`` under MaxDiff with a victim of the zoo, and wrapping an environment in the latter.
Counted is every frame of Python that is entered in a file of the package, as ``sys.setprofile`` reports it: functions,
lambdas, comprehensions and resumed generators. Kernels of torch and the environment's own functions are not.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

import gymnasium as gym

import adv_wrappers as adv

PACKAGE = os.path.dirname(os.path.abspath(adv.__file__)) + os.sep
VICTIM = "zoo:cartpole-dqn"


class Trace:
    """The frames of the package that a function enters.

    Args:
        function: what to trace; called once.

    Attributes:
        frames: code of every frame, in the order in which they are entered.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self.frames: list[CodeType] = []
        before = sys.getprofile()
        sys.setprofile(self._record)
        try:
            function()
        finally:
            sys.setprofile(before)

    def _record(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.frames.append(frame.f_code)

    @property
    def calls(self) -> int:
        """Number of frames."""
        return len(self.frames)

    @property
    def functions(self) -> int:
        """Number of different functions."""
        return len(set(self.frames))

    @property
    def files(self) -> list[str]:
        """The file of every frame, relative to the package."""
        return [code.co_filename[len(PACKAGE) :] for code in self.frames]

    @property
    def changes(self) -> int:
        """How often a frame is entered in another file than the frame before."""
        files = self.files
        return sum(a != b for a, b in itertools.pairwise(files))

    def listing(self) -> str:
        """One line a function, in the order of first calls: how often, its file, its name."""
        count = Counter(zip(self.files, (code.co_qualname for code in self.frames), strict=True))
        return "\n".join(f"{times:5d}  {file}  {name}" for (file, name), times in count.items())


def step(how: adv.Noise | adv.MaxDiff) -> Trace:
    """The third step of an episode on CartPole under an attack on its observations."""
    env = adv.PerturbObservation(gym.make("CartPole-v1"), how, within=adv.Linf(0.1))
    env.reset(seed=0)
    for action in (0, 1):  # what is made once is made by now
        env.step(action)
    return Trace(lambda: env.step(0))


def noise() -> Trace:
    """A step under uniform noise."""
    return step(adv.Noise())


def max_diff() -> Trace:
    """A step under MaxDiff, ten steps up the gradient."""
    return step(adv.MaxDiff(adv.load_victim(VICTIM)))


def wrapping() -> Trace:
    """Wrapping an environment in MaxDiff: building the attack, filling in its victim, every check."""
    env, victim = gym.make("CartPole-v1"), adv.load_victim(VICTIM)
    wrap = lambda: adv.PerturbObservation(env, adv.MaxDiff(), within=adv.Linf(0.1), victim=victim)  # noqa: E731
    wrap()  # what a process makes once is made by now
    return Trace(wrap)


ROUTES: dict[str, Callable[[], Trace]] = {"noise": noise, "max-diff": max_diff, "wrapping": wrapping}


def main() -> None:
    """Print a row for every route, or for those that are named."""
    parser = argparse.ArgumentParser(
        "python -m tests.trace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("routes", nargs="*", metavar="route", help=f"{', '.join(ROUTES)}; without any, all of them")
    parser.add_argument("--list", action="store_true", help="list the functions: how often each is called, and where")
    arguments = parser.parse_args()
    if unknown := set(arguments.routes) - set(ROUTES):
        parser.error(f"unknown route {', '.join(sorted(unknown))}: there are {', '.join(ROUTES)}")
    print(f"{'route':10s} {'calls':>6s} {'functions':>10s} {'files':>6s} {'changes of file':>16s}")
    for name in arguments.routes or ROUTES:
        trace = ROUTES[name]()
        print(f"{name:10s} {trace.calls:6d} {trace.functions:10d} {len(set(trace.files)):6d} {trace.changes:16d}")
        if arguments.list:
            print(trace.listing())


if __name__ == "__main__":
    main()
