"""Adversarial environment ids: ``adv_wrappers:adv/<preset>-v0`` and those that users register.

Every id is registered with two functions, one for ``gymnasium.make`` and one for ``gymnasium.make_vec``: both work,
both take keyword arguments, and libraries that make environments by their id (such as RLlib) can use them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from adv_wrappers.atari.env import ThreatLike, unknown_arguments
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.gym_make import ensure_registered
from adv_wrappers.errors import ThreatError
from adv_wrappers.registry import register_threats
from adv_wrappers.threats.presets import as_threat, threat
from adv_wrappers.utils.threads import one_thread_in_workers
from adv_wrappers.wrappers.layer import AnyEnv, AnyVectorEnv
from adv_wrappers.wrappers.probabilistic_timing import ProbabilisticTiming
from adv_wrappers.wrappers.wrap import wrap

_FRAMESKIP = "frameskip"
_OPTIONS = ("quantize", "keep_true")


Kwargs = dict[str, Any]


def _threats(preset: str | None, threats: Sequence[ThreatLike] | None, arguments: Kwargs) -> list[ThreatModel]:
    if preset is not None and _FRAMESKIP not in arguments:
        return [threat(preset, **arguments)]
    if arguments:
        accepts = "this id takes env, threats, timing and env_kwargs"
        if preset is not None:
            accepts = f"{preset} takes env, env_kwargs, timing and what its threat takes"
        raise unknown_arguments(accepts, arguments)
    return [as_threat(item) for item in threats or ()]


def _perturbed(env: Any, made: list[ThreatModel], timing: float | None, options: Kwargs) -> Any:
    env = wrap(env, *made, **options)
    return env if timing is None else ProbabilisticTiming(env, timing)


def _split_options(arguments: Kwargs) -> tuple[Kwargs, Kwargs]:
    own = {key: value for key, value in arguments.items() if key not in _OPTIONS}
    return own, {key: value for key, value in arguments.items() if key in _OPTIONS}


def make_env(
    env: str | None = None,
    preset: str | None = None,
    threats: Sequence[ThreatLike] | None = None,
    timing: float | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    env_id: str | None = None,
    **arguments: Any,
) -> AnyEnv:
    """One environment ``env`` under a preset with ``arguments``, or under a list of threats.

    ``env_id`` is another name of ``env``, for libraries that have an argument ``env`` of their own (TorchRL).
    """
    one_thread_in_workers()
    arguments, options = _split_options(arguments)
    made = _threats(preset, threats, arguments)
    extra: Kwargs = {} if render_mode is None else {"render_mode": render_mode}
    wrapped = _perturbed(gym.make(_base(env, env_id), **dict(env_kwargs or {}), **extra), made, timing, options)
    wrapped.whole_spec = True  # the id's own spec describes the whole stack
    return wrapped  # type: ignore[no-any-return]


def make_vec_env(
    num_envs: int = 1,
    env: str | None = None,
    preset: str | None = None,
    threats: Sequence[ThreatLike] | None = None,
    timing: float | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    autoreset_mode: gym.vector.AutoresetMode | str | None = None,
    vectorization_mode: str | None = None,
    env_id: str | None = None,
    **arguments: Any,
) -> AnyVectorEnv:
    """``num_envs`` environments under one vector wrapper a threat: attacks are batched, and computed in this process.

    ``autoreset_mode`` and ``vectorization_mode`` are those of the environment beneath; CartPole's own vector class has
    NEXT_STEP alone, so another mode takes its ordinary environments side by side.
    """
    arguments, options = _split_options(arguments)
    made = _threats(preset, threats, arguments)
    base = _base(env, env_id)
    extra: Kwargs = dict(env_kwargs or {})
    if render_mode is not None:
        extra["render_mode"] = render_mode
    # the autoreset mode is an argument of Atari's own vector, and else one of ordinary environments side by side
    entry = gym.spec(base).vector_entry_point
    if autoreset_mode is not None:
        mode = gym.vector.AutoresetMode(autoreset_mode)
        if vectorization_mode in (None, "vector_entry_point") and base.startswith("ALE/"):
            extra["autoreset_mode"] = mode
        else:
            if vectorization_mode is None and entry is not None:
                vectorization_mode = "sync"
            extra["vector_kwargs"] = {"autoreset_mode": mode}
    inner = gym.make_vec(base, num_envs=num_envs, vectorization_mode=vectorization_mode, **extra)
    return _perturbed(inner, made, timing, options)  # type: ignore[no-any-return]


def _base(env: str | None, env_id: str | None) -> str:
    if env is not None and env_id is not None:
        raise ThreatError(f"env and env_id are two names of one argument, got {env!r} and {env_id!r}")
    env = env_id if env is None else env
    if not isinstance(env, str):
        raise ThreatError(f"say which environment to attack: env='Hopper-v5', for one; got {env!r}")
    return ensure_registered(env)


def register(
    id: str,
    *,
    env: str,
    threats: Sequence[ThreatLike],
    timing: float | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Register an adversarial id for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Args:
        id: the new id, such as ``"lab/Hopper-Hostile-v0"``.
        env: the id of the environment to wrap.
        threats: the threats, innermost first: texts, dictionaries, or threats that have a JSON form.
        timing: the probability that all of them are active at a step (see :class:`ProbabilisticTiming`).
        env_kwargs: keyword arguments of the environment to wrap.

    Raises:
        ThreatError: for an id that is taken, or a threat that has no JSON form.
        AdvWrappersError: one of its kinds, if the stack cannot work: it is built once here, and closed.

    >>> register("docs/CartPole-Noisy-v0", env="CartPole-v1", threats=["noise:eps=0.05"])
    >>> env = gym.make("docs/CartPole-Noisy-v0")
    """
    if id in gym.registry:
        raise ThreatError(f"the id {id!r} is registered already")
    if isinstance(threats, (str, Mapping)):
        raise ThreatError(f"threats is a list, innermost first: [{threats!r}]")
    # threats as JSON, since Gymnasium keeps keyword arguments in its registry
    stored: list[Any] = []
    for item in threats:
        made = as_threat(item)
        stored.append(item if isinstance(item, str) else json.loads(json.dumps(made.to_dict())))
    kwargs: Kwargs = {"env": env, "threats": stored}
    if timing is not None:
        kwargs["timing"] = timing
    if env_kwargs:
        kwargs["env_kwargs"] = dict(env_kwargs)
    # built once, so that what cannot work is told now
    make_env(**kwargs).close()
    register_threats(id, kwargs)
