"""Rows of one small evaluation, which all tests of the report read."""

from __future__ import annotations

import shutil

import pytest

import adv_wrappers as adv
from tests.episodes import short_episodes_of

THREATS = [
    "fgsm:eps=0.05",
    "fgsm:eps=0.2",
    "noise:eps=0.2",
    "noise:eps=0.4",
    "fgsm:eps=0.3,norm=l2",
    "fgsm:eps=0.2,scale=1;0;0;0",
    "fgsm:eps=0.2,scale=0;0;1;0",
    "fgsm:eps=0.4,scale=0;0;1;0",
    "fgsm:eps=0.4,when=window(0,20)",
    "fgsm:eps=0.4,when=window(20,40)",
    "fgsm:eps=0.4,when=atmost(3)",
    "fgsm:eps=0.4,when=atmost(9)",
    "fgsm:eps=0.4,when=strategic(0.1)&atmost(3)",
    "action-flip:when=every(8)",
    "noise:eps=0.1 + action-flip:when=every(8)",
    "fgsm:eps=0.2,when=every(2)",
]


@pytest.fixture(scope="package", autouse=True)
def short_episodes():
    """Episodes of CartPole of at most 120 steps, instead of 500, in the rows and where they are played again."""
    with short_episodes_of(120, "CartPole-v1"):
        yield


@pytest.fixture(scope="package")
def played(tmp_path_factory, short_episodes):
    """The folder of an evaluation; not to be written to."""
    folder = tmp_path_factory.mktemp("report") / "cartpole"
    adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", THREATS, episodes=3, out=folder)
    return folder


@pytest.fixture
def folder(played, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(played, tmp_path / "cartpole")
