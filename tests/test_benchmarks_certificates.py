"""The page of certificates beside attacks: which agents it takes, and that it holds every figure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import adv_wrappers as adv
from adv_wrappers.victims import zoo_names
from tests.result_scripts import result_script

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def certificates():
    with result_script("certificates") as module:
        yield module


def test_cards_of_a_folder_are_measured_where_they_can_be(certificates, tmp_path):
    for name in ("cartpole-a2c", "hopper-ppo"):
        shutil.copytree(ROOT / "adv_wrappers" / "zoo" / name, tmp_path / name)
    (tmp_path / "notes").mkdir()
    own, found = [*certificates.cases(None)], [*certificates.cases(tmp_path)]
    discrete = {name for name in zoo_names() if adv.load_victim(f"zoo:{name}").discrete}
    assert {case.ref.removeprefix("zoo:") for case in own} == discrete
    assert [case.ref for case in found[len(own) :]] == [f"card:{tmp_path / 'cartpole-a2c'}"]
    assert found[-1].eps == own[0].eps


def test_pong_ends_with_its_first_point(certificates):
    env = certificates.pong()
    env.reset(seed=0)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = env.step(0)
        rewards.append(reward)
        over = terminated or truncated
    assert rewards[-1] == -1 and not any(rewards[:-1])
    env.close()
