"""What is kept of an object, kind by kind, and how it is put back into the same object.

Everything that an environment can change is reached from its attributes. A walk through them keeps the content of each
object once: of a list its elements, of a wrapper its attributes, of a random generator its state. What simulators keep
outside Python is copied by their own means.
"""

from __future__ import annotations

import collections
import copy
import datetime
import enum
import functools
import os
import random
import re
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from torch import Tensor, nn

from adv_wrappers.core.engine.context import AppliedThreat
from adv_wrappers.core.engine.numpy_backend import NumpyAttack
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.types import Array
from adv_wrappers.victims.victim import Victim

# how each content is put back, into which object, and the content
SavedContents = list[tuple[Callable[[Any, Any], object], Any, Any]]

_SHARED: tuple[type, ...] = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, enum.Enum, os.PathLike, re.Pattern,
    datetime.date, datetime.time, datetime.timedelta, types.FunctionType, types.ModuleType, types.MappingProxyType,
    types.WrapperDescriptorType, types.MethodDescriptorType, type({}.keys()), type({}.values()), type({}.items()),
    weakref.ref, weakref.ProxyType, property, np.generic, np.dtype, np.ufunc,
    torch.dtype, torch.device, nn.Module, nn.Parameter, spaces.Space, EnvSpec, Value, Victim, Field, NumpyAttack,
    AppliedThreat,
)  # fmt: skip
# modules, by the beginning of their names, whose objects are shared: they draw, log, lock or learn
_SHARED_MODULES = (
    "OpenGL.", "PIL.", "_thread.", "adv_wrappers.accel.", "adv_wrappers.environments.object_snapshot.",
    "adv_wrappers.environments.replay.", "adv_wrappers.environments.simulator.", "adv_wrappers.environments.snapshot.",
    "cv2.", "glfw.",
    "gymnasium.envs.mujoco.mujoco_rendering.", "imageio.", "jax.", "jaxlib.", "logging.", "matplotlib.", "moviepy.",
    "mujoco.", "pygame.", "stable_baselines3.common.base_class.", "threading.",
)  # fmt: skip
_ELSEWHERE = ("multiprocessing.", "ray.", "subprocess.", "socket.")  # modules of what is in other processes
# arguments of constructors, and what stands for a class: no state of an episode
_CONSTANT = frozenset({"_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs", "_cached_spec", "metadata", "_metadata"})


class NotCopied(Exception):
    """Something that cannot be saved; ``path`` grows from its end on the way out."""

    def __init__(self, value: object, why: str) -> None:
        super().__init__(why)
        self.value = value
        self.why = why
        self.path = list[str]()

    @property
    def text(self) -> str:
        """What cannot be saved, where it is, and why."""
        path = "".join(reversed(self.path)).lstrip(".")
        return f"its {path or 'object'} is a {type(self.value).__qualname__}, {self.why}"


class KeepsItself:
    """An object that says itself what is kept of it."""

    def keep(self, walk: Walk) -> None:
        """Add to ``walk.kept`` what brings this object back.

        Raises:
            NotCopied: for a part that cannot be saved.
        """
        raise NotImplementedError


class Walk:
    """One walk through everything that an environment holds.

    Args:
        partial: leave out what cannot be saved, instead of raising.

    Attributes:
        kept: what was kept so far; put back in this order.
        seen: the identities of the objects that need not be visited any more.
        spare: MuJoCo's data to write into, by the identity of those that they are copies of.
    """

    def __init__(self, partial: bool = False) -> None:
        self.partial = partial
        self.kept: SavedContents = []
        self.seen: set[int] = set()
        self.spare: dict[int, Any] = {}

    def visit(self, value: object) -> bool:
        """Keep the content of ``value``; False if it has to be copied as a whole, and its holder rebound."""
        kind = type(value)
        # how to keep a class is looked up once
        keep = _KEEP.get(kind, _unknown)
        if keep is _unknown:
            keep = _KEEP[kind] = _keep_of(kind)
        if keep is None or id(value) in self.seen:
            return True
        if keep is _copied:
            return self.partial
        # noted before its contents, which may refer to it
        self.seen.add(id(value))
        keep(self, value)
        return True

    def children(
        self,
        holder: Any,
        items: Iterable[tuple[Any, Any]],
        name: Callable[[Any], str],
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        """Visit what a dictionary or list holds; what cannot be written into is copied, and put back as a copy."""
        known = _KEEP.get
        for key, value in [i for i in items if known(type(i[1]), _unknown) is not None and i[0] not in skipped]:
            try:
                # a value that cannot be written into is replaced by a copy of it
                if not self.visit(value):
                    self.kept.append((_put_copy, (holder, key), _deepcopy(value)))
            except NotCopied as error:
                if self.partial:
                    continue
                error.path.append(name(key))
                raise

    def elements(self, values: Iterable[object]) -> None:
        """Visit what a tuple, set or queue holds, whose elements cannot be exchanged."""
        for number, value in enumerate(values):
            try:
                if not self.visit(value) and _deepcopy(value) is not value:  # what cannot change copies to itself
                    raise NotCopied(value, "whose state is hidden from Python")
            except NotCopied as error:
                if self.partial:
                    continue
                error.path.append(f"[{number}]")
                raise


# what is kept of a value, and how it is put back


def _attributes(walk: Walk, value: Any) -> None:
    own = value.__dict__
    walk.kept.append((_put_attributes, value, dict(own)))
    walk.children(own, own.items(), _dotted, _CONSTANT)


def _dotted(name: object) -> str:
    return f".{name}"


def _indexed(key: object) -> str:
    return f"[{key!r}]"


def _put_attributes(value: Any, kept: dict[str, object]) -> None:
    own = value.__dict__
    own.update(kept)
    if len(own) != len(kept):
        for name in own.keys() - kept.keys():
            del own[name]


def _slots(walk: Walk, value: Any) -> None:
    kept = {name: getattr(value, name) for name in _slot_names(type(value)) if hasattr(value, name)}
    walk.kept.append((_put_slots, value, kept))
    walk.elements(kept.values())
    if hasattr(value, "__dict__"):
        _attributes(walk, value)


def _slot_names(kind: type) -> list[str]:
    found = list[str]()
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                hidden = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return found


def _put_slots(value: object, kept: dict[str, object]) -> None:
    for name, part in kept.items():
        object.__setattr__(value, name, part)
    for name in _slot_names(type(value)):
        if name not in kept and hasattr(value, name):
            object.__delattr__(value, name)


def _dictionary(walk: Walk, value: dict[Any, Any]) -> None:
    walk.kept.append((_put_all, value, dict(value.items())))
    walk.children(value, value.items(), _indexed)


def _put_all(value: Any, kept: Any) -> None:
    value.clear()
    value.update(kept)


def _list(walk: Walk, value: list[Any]) -> None:
    walk.kept.append((_put_list, value, list(value)))
    walk.children(value, enumerate(value), _indexed)


def _put_list(value: Any, kept: Any) -> None:
    value[:] = kept


def _put_queue(value: collections.deque[Any], kept: list[Any]) -> None:
    value.clear()
    value.extend(kept)


def _tuple(walk: Walk, value: Iterable[Any]) -> None:
    walk.elements(value)


def _array(walk: Walk, value: Array) -> None:
    if value.dtype.hasobject:
        walk.elements(value.ravel().tolist() if value.dtype == object else ())
    if value.flags.writeable:
        walk.kept.append((np.copyto, value, value.copy()))


def _put_tensor(value: Tensor, kept: Tensor) -> None:
    with torch.inference_mode(value.is_inference()), torch.no_grad():
        value.copy_(kept)


def _put_state(value: Any, kept: Any) -> None:
    value.state = kept


def _content(
    read: Callable[[Any], Any], put: Callable[[Any, Any], object], elements: bool = False
) -> Callable[[Walk, Any], None]:
    """Keeps what ``read`` copies and ``put`` writes back; ``elements`` are looked into."""

    def keep(walk: Walk, value: Any) -> None:
        walk.kept.append((put, value, read(value)))
        if elements:
            walk.elements(value)

    return keep


# put states of generators
RANDOM = frozenset({_put_state, np.random.RandomState.set_state, random.Random.setstate, torch.Generator.set_state})


def _generator(walk: Walk, value: np.random.Generator) -> None:
    walk.kept.append((_put_state, value.bit_generator, value.bit_generator.state))


def _method(walk: Walk, value: types.MethodType | types.BuiltinFunctionType) -> None:
    walk.visit(value.__self__)


def _partial(walk: Walk, value: functools.partial[Any]) -> None:
    walk.elements((value.func, *value.args, *value.keywords.values()))


def is_mujoco_data(value: object) -> bool:
    """Whether these are MuJoCo's data, of a simulation or copied from one."""
    return type(value).__name__ == "MjData" and type(value).__module__.startswith("mujoco.")


def _mujoco(walk: Walk, value: Any) -> None:
    import mujoco

    spare = walk.spare.pop(id(value), None)
    if spare is None:
        spare = copy.copy(value)
    else:
        mujoco.mj_copyData(spare, value.model, value)
    walk.kept.append((_put_mujoco, value, spare))


def _put_mujoco(value: Any, kept: Any) -> None:
    import mujoco

    mujoco.mj_copyData(value, value.model, kept)


def _emulator(walk: Walk, value: Any) -> None:
    if _is_sticky(value) and not walk.partial:  # the action that may be repeated is not in ALE's state
        raise NotCopied(value, "which does not save the action that it may repeat: give repeat_action_probability=0")
    walk.kept.append((_put_emulator, value, value.cloneState(include_rng=True)))


def _is_sticky(emulator: Any) -> bool:
    return bool(emulator.getFloat("repeat_action_probability") > 0)


def _put_emulator(value: Any, kept: Any) -> None:
    value.restoreState(kept)


def _iterator(walk: Walk, value: object) -> None:
    if not walk.partial:  # older releases of Python copy some of them, and warn that they will not for long
        raise NotCopied(value, "which Python does not copy from 3.14 on")


def _copied(walk: Walk, value: object) -> None:
    """Marks kinds whose state is hidden from Python: they are copied as a whole, if they allow it."""
    raise AssertionError


def _unknown(walk: Walk, value: object) -> None:
    """Stands for kinds that were not met before."""
    raise AssertionError


def _deepcopy(value: object) -> object:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever an object's own copying may raise
        raise NotCopied(value, f"which cannot be copied ({error})") from error


def _put_copy(place: tuple[Any, Any], kept: object) -> None:
    holder, key = place
    holder[key] = copy.deepcopy(kept)


HIDDEN = frozenset({_put_copy, _put_mujoco})  # put back contents that bytes do not compare


def can_be_saved(part: Any) -> bool:
    """Whether all that an object holds can be saved."""
    try:
        return Walk().visit(part) or _deepcopy(part) is not None
    except NotCopied:
        return False


def random_parts(env: Any) -> SavedContents:
    """How the random states in an environment are put back: of generators, and of emulators that repeat actions.

    What cannot be saved is looked into as far as Python sees, and left out.
    """
    walk = Walk(partial=True)
    walk.visit(env)
    return [part for part in walk.kept if part[0] in RANDOM or (part[0] is _put_emulator and _is_sticky(part[1]))]


def _by_itself(walk: Walk, value: KeepsItself) -> None:
    value.keep(walk)


def _refused(walk: Walk, value: object) -> None:
    raise NotCopied(value, "which belongs to another process: use SyncVectorEnv or DummyVecEnv, in this one")


def _outside(walk: Walk, value: object) -> None:
    raise NotCopied(value, "whose state is outside Python")


_Keep = Callable[[Walk, Any], None]
_KEEP: dict[type, _Keep | None] = {}  # by exact class, as it was found once
_WAYS: list[tuple[type, _Keep]] = [
    (dict, _dictionary), (list, _list), (tuple, _tuple), (frozenset, _tuple), (np.ndarray, _array),
    (collections.deque, _content(list, _put_queue, elements=True)),
    (set, _content(set, _put_all, elements=True)),
    (bytearray, _content(bytes, _put_list)),
    (Tensor, _content(lambda value: value.detach().clone(), _put_tensor)),
    (np.random.Generator, _generator),
    (np.random.BitGenerator, _content(lambda value: value.state, _put_state)),
    (np.random.RandomState, _content(lambda value: value.get_state(legacy=False), np.random.RandomState.set_state)),
    (random.Random, _content(random.Random.getstate, random.Random.setstate)),
    (torch.Generator, _content(torch.Generator.get_state, torch.Generator.set_state)),
    (types.MethodType, _method), (types.BuiltinFunctionType, _method), (types.MethodWrapperType, _method),
    (functools.partial, _partial),
]  # fmt: skip


def _keep_of(kind: type) -> _Keep | None:
    """How objects of a class are kept; None for those that are shared."""
    # simulators by their own means
    if kind.__name__ == "MjData" and kind.__module__.startswith("mujoco."):
        return _mujoco
    if kind.__name__ == "ALEInterface" and kind.__module__.startswith("ale_py"):
        return _emulator
    if issubclass(kind, KeepsItself):
        return _by_itself
    if hasattr(kind, "thisown"):  # of SWIG, as Box2D's are
        return _outside
    # kinds that can only be refused, and those that nothing in an episode changes
    modules = [f"{getattr(base, '__module__', '')}." for base in kind.__mro__]  # types of SWIG have none
    if "itertools." in modules:
        return _iterator
    if any(module.startswith(_ELSEWHERE) for module in modules):
        return _refused
    if issubclass(kind, _SHARED) or any(module.startswith(_SHARED_MODULES) for module in modules):
        return None
    # containers, arrays and generators, with attributes of their own where they have some
    for base, keep in _WAYS:
        if issubclass(kind, base):
            if kind.__dictoffset__ == 0:
                return keep
            return functools.partial(_with_attributes, keep)
    plain = all(base.__flags__ & (1 << 9) and base.__name__ != "pybind11_object" for base in kind.__mro__[:-1])
    if not plain:  # a part of it is written in C: attributes are not all of its state
        return _copied
    # plain classes of Python: all of their state is in slots and attributes
    slots = [base.__dict__.get("__slots__") for base in kind.__mro__[:-1]]
    if any(slots):
        return _slots
    if kind.__dictoffset__:
        return _attributes
    return _copied if None in slots else None  # with empty slots alone there is nothing to change


def _with_attributes(keep: _Keep, walk: Walk, value: Any) -> None:
    keep(walk, value)
    _attributes(walk, value)


def is_of_box2d(part: object) -> bool:
    """Whether this is an object of Box2D."""
    return str(getattr(type(part), "__module__", "")).startswith("Box2D.")


def make_worlds_anew(env: Any) -> None:
    """Give an environment of Box2D the world that its constructor makes, if that has taken its arguments down.

    A world from which all bodies were removed meets contacts in another order than a new one, and BipedalWalker resets
    its own: of an episode that is played again after others, some steps then differ in their last digits.
    """
    own: dict[str, object] = env.__dict__
    if isinstance(env, EzPickle) and any(is_of_box2d(part) for part in own.values()):
        made = copy.deepcopy(env).__dict__
        for name in [name for name, part in own.items() if not can_be_saved(part)]:
            del own[name]
            if name in made:
                own[name] = made[name]
