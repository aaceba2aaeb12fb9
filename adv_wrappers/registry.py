"""What has a name here and is imported when it is needed: presets, ids, files of victims, what options choose from.

``import adv_wrappers``, ``adv-wrappers COMMAND --help``, errors of usage and completions in a shell read these names;
the modules that they stand for import torch, which takes more than a second.

Presets: :data:`adv_wrappers.threats.presets.presets` has the presets themselves. Installed packages add theirs by
entry points of the group ``adv_wrappers.presets``, whose names are read without importing them, until
:func:`load_entry_points` does. Ids: ``adv/<preset>-v0`` for every preset
(:mod:`adv_wrappers.environments.registration`), and thirty ids ``adv-daylight/<Game>-<Transform>-v0``
(:mod:`adv_wrappers.atari.daylight_ids`).
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

# presets

GROUP = "adv_wrappers.presets"  # of entry points
# those of this package, in the order of adv_wrappers/threats/all_attacks.py and adv_wrappers/daylight
NAMES = (
    "noise", "flip", "min-best", "fgsm", "pgd", "apgd", "multi-targeted", "min-played-q", "max-worst", "momentum",
    "min-q", "min-value", "max-diff", "robust-sarsa", "carlini-wagner", "square", "hop-skip-jump", "discrete-search",
    "model-based", "sensor-bias", "sensor-drift", "quantization", "saturation", "stuck-sensor", "sensor-dropout",
    "swapped-sensors", "observation-delay", "observation-jitter", "observation-loss", "occlusion", "trigger", "learned",
    "action-noise", "action-flip", "worst-action", "action-delay", "action-loss", "action-model-based",
    "dynamics-noise", "fixed-dynamics", "reward-noise", "reward-flip", "reward-clip", "reward-delay",
    "median-blur", "brightness", "daylight", "jpeg", "perspective", "rotation", "shift",
)  # fmt: skip
# called with the names of all presets when those of installed packages have been imported
after_load: list[Callable[[Iterable[str]], None]] = []


def preset_entry_points() -> list[EntryPoint]:
    """The entry points of installed packages, in the order of their names."""
    return sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value))


def load_entry_points() -> list[tuple[EntryPoint, Any]]:
    """Import what installed packages add: their entry points, each with the object that it names.

    Warns:
        RuntimeWarning: for a package that cannot be imported, which is left out.
    """
    found = []
    for entry_point in preset_entry_points():
        try:
            found.append((entry_point, entry_point.load()))
        except Exception as error:  # whatever the package does when it is imported
            warn_left_out(entry_point, error)
    return found


def warn_left_out(entry_point: EntryPoint, why: Exception) -> None:
    """Warn that the presets of an installed package are left out."""
    message = f"the presets {entry_point.value} of {package_of(entry_point)} are left out: {why}"
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def package_of(entry_point: EntryPoint) -> str:
    """The name of the package that an entry point belongs to."""
    return "an installed package" if entry_point.dist is None else entry_point.dist.name


def names_without_importing() -> list[str]:
    """The names of this package's presets, and of the entry points of others."""
    return [*NAMES, *(one.name for one in preset_entry_points())]


# environment ids

DAYLIGHT_GAMES = ("BankHeist", "JamesBond", "Pong", "RiverRaid", "TimePilot")
# the classes of the transforms, by which ids call them, and their presets
DAYLIGHT_TRANSFORMS = {
    "Brightness": "brightness", "MedianBlur": "median-blur", "Rotation": "rotation", "Shift": "shift", "JPEG": "jpeg",
    "Perspective": "perspective",
}  # fmt: skip


def register_id(id: str, kwargs: Mapping[str, Any], make: str, make_vec: str) -> None:
    """Register an id for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Args:
        id: the id.
        kwargs: the keyword arguments of both functions.
        make: the function that makes one environment, as ``module:function``; it is imported when it is called.
        make_vec: the function that makes several.
    """
    import gymnasium as gym

    gym.register(
        id,
        entry_point=make,
        vector_entry_point=make_vec,
        kwargs=dict(kwargs),
        order_enforce=False,
        disable_env_checker=True,
    )


def register_threats(id: str, kwargs: Mapping[str, Any]) -> None:
    """Register an id of an environment under a preset or threats."""
    register_id(
        id,
        kwargs,
        "adv_wrappers.environments.registration:make_env",
        "adv_wrappers.environments.registration:make_vec_env",
    )


def register_presets(names: Iterable[str]) -> None:
    """Register ``adv/<preset>-v0`` for every name that has none yet."""
    import gymnasium as gym

    for name in names:
        if f"adv/{name}-v0" not in gym.registry:
            register_threats(f"adv/{name}-v0", {"preset": name})


def daylight_ids() -> dict[str, dict[str, str]]:
    """The ids of the daylight paper, and the game and transform of each.

    >>> len(daylight_ids()), next(iter(daylight_ids()))
    (30, 'adv-daylight/BankHeist-Brightness-v0')
    """
    return {
        f"adv-daylight/{game}-{kind}-v0": {"game": game, "transform": transform}
        for game in DAYLIGHT_GAMES
        for kind, transform in DAYLIGHT_TRANSFORMS.items()
    }


def register_all() -> None:
    """Register every id, those of presets of installed packages by the names of their entry points.

    An entry point may hold presets of other names, which follow when it is imported.
    """
    import gymnasium as gym

    register_presets(names_without_importing())
    after_load.append(register_presets)
    module = "adv_wrappers.atari.daylight_ids"
    for id, kwargs in daylight_ids().items():
        if id not in gym.registry:
            register_id(id, kwargs, f"{module}:make_daylight", f"{module}:make_daylight_vec")


def register_with_gymnasium() -> None:
    """Register every id, now where Gymnasium is imported, or else as soon as it is: a command's help is without it."""
    if "gymnasium" in sys.modules:
        register_all()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium(MetaPathFinder):
    """Finds Gymnasium as the other finders do, and registers the ids at the end of its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of Gymnasium; None for any other module, which the other finders look for."""
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register_all()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


# victims


class VictimFiles(NamedTuple):
    """Files of victims that a reference has one prefix for; which function loads them says ``victims/references.py``.

    Attributes:
        written: how the reference is written.
        ends: how the name of a file ends; of a folder the name of a file in it; None for files that are elsewhere.
        trust: whether such a file may hold code, which only ``trust=True`` runs.
        spaces: whether it knows its spaces; else commands give it those of their environment.
    """

    written: str
    ends: str | None
    trust: bool = False
    spaces: bool = True


VICTIM_FILES = {
    "card": VictimFiles("card:FOLDER", "card.json"),
    "hub": VictimFiles("hub:user/name@revision", None),
    "sb3": VictimFiles("sb3:FILE.zip", ".zip", trust=True),
    "rllib": VictimFiles("rllib:FOLDER", "rllib_checkpoint.json", trust=True),
    "rsl_rl": VictimFiles("rsl_rl:FILE.pt", ".pt"),
    "rl_games": VictimFiles("rl_games:FILE.pth", ".pth"),
    "onnx": VictimFiles("onnx:FILE", ".onnx", spaces=False),
    "torchscript": VictimFiles("torchscript:FILE", ".pt", trust=True, spaces=False),
}
WITH_SPACES = tuple(kind for kind, files in VICTIM_FILES.items() if files.spaces)  # which load_victim loads


def written_references(kinds: Iterable[str], quote: str = "") -> str:
    """How the references of these kinds are written, the zoo first.

    >>> written_references(["card", "sb3"])
    'zoo:NAME, card:FOLDER or sb3:FILE.zip'
    """
    *first, last = (f"{quote}{one}{quote}" for one in ("zoo:NAME", *(VICTIM_FILES[kind].written for kind in kinds)))
    return f"{', '.join(first)} or {last}"


# what options choose from, and the defaults that their help shows

SUITE_NAMES = ("standard", "action", "daylight", "certified", "everything")  # of adv_wrappers.studies.SUITES
Method = Literal["interval", "crown", "full-crown", "bisect"]  # of bounds, from the fastest to the tightest
By = Literal["return", "loss"]  # what the best of several draws is chosen by
CurvesBy = Literal["threat", "victim", "env", "seed"]  # of adv_wrappers.evaluation.statistics.curves
CURVES_BY: tuple[CurvesBy, ...] = get_args(CurvesBy)
FORMS = ("direction", "target")  # of PA-AD's actions
BOTH = "both"  # forms are trained, and the stronger is kept
Form = Literal["direction", "target", "both"]
Observe = Literal["state", "state+action", "state+action+spent"]  # what an adversary that learns may observe
OBSERVE: tuple[Observe, ...] = get_args(Observe)
Robust = Literal["radial", "sa", "wocar", "car", "smoothed"]  # robust losses; wocar of PPO and A2C, car of DQN
Rewards = Literal["normalized", "clipped", "raw"]  # what an agent learns from
MOST_HIDDEN = 500  # layers of a learned model of an environment
BEAM_WIDTH = 32  # states that a beam search keeps of every episode
Select = Literal["mode", "sample"]  # what a victim plays of its distribution
