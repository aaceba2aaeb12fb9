"""What files name that would be imported, before anything is."""

from __future__ import annotations

from adv_wrappers.environments.environment import named_code
from tests.every_case import every_case


@every_case(
    ("id", "kwargs", "code"),
    [
        ("CartPole-v1", {}, None),
        ("ALE/Pong-v5", {"frameskip": 4}, None),
        ("ale_py:ALE/Pong-v5", {}, None),
        ("adv_wrappers:adv/noise-v0", {"env": "CartPole-v1", "threats": ["noise:eps=0.1"]}, None),
        ("adv/noise-v0", {"env": "CartPole-v1", "victim": "zoo:cartpole-dqn"}, None),
        ("somemodule:CartPole-v1", {}, "somemodule:CartPole-v1"),
        ("gymnasium_of_others:CartPole-v1", {}, "gymnasium_of_others:CartPole-v1"),
        ("adv/noise-v0", {"env": "somemodule:CartPole-v1"}, "somemodule:CartPole-v1"),
        ("adv/noise-v0", {"env_id": "somemodule:CartPole-v1"}, "somemodule:CartPole-v1"),
        ("adv/noise-v0", {"env": "adv/pgd-v0", "env_kwargs": {"env": "a.b:C-v0"}}, "a.b:C-v0"),
        ("Any-v0", {"wrappers": [{"entry_point": "os:system"}]}, "os:system"),
    ],
)
def test_what_an_environment_would_import(id, kwargs, code):
    assert named_code(id, kwargs) == code
