"""References to victims."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file

from adv_wrappers.core.serialization import decode, encode
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.victims import load_victim, references, save_card, zoo_names
from tests.every_case import every_case


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    given = torch.nn.Linear(4, 2), spaces.Box(-1, 1, (4,)), spaces.Discrete(2), "q"
    for folder in ("zoo/small", "outside"):
        save_card(tmp_path / folder, *given, environment="CartPole-v1")
    (tmp_path / "zoo" / "empty").mkdir()
    monkeypatch.setattr(references, "_ZOO", tmp_path / "zoo")
    return tmp_path


def test_names_and_references(shelf):
    assert zoo_names() == ("small",)
    victim = load_victim("zoo:small", select="sample", dtype=torch.float64)
    assert (victim.ref, victim.select, victim.dtype) == ("zoo:small", "sample", torch.float64)
    assert load_victim(victim) is victim
    text = f"card:{shelf / 'outside'}"
    assert load_victim(text).ref == text
    assert load_victim(text).fingerprint() == load_victim("zoo:small").fingerprint()


@every_case("name", ["../outside", "small/../../outside", "small/", "", ".", "empty", "SMALL/."])
def test_only_names_of_the_zoo(shelf, name):
    with pytest.raises(VictimError, match=r"known: small|did you mean zoo:small"):
        load_victim(f"zoo:{name}")


@every_case("ref", ["small", "http://example.org", "", "card:", "sb3:", 3, None, "zoo", ["zoo:small"]])
def test_anything_else_is_explained(shelf, ref):
    with pytest.raises(VictimError, match=r"(?s)card:FOLDER.*sb3:FILE.*small|known: small"):
        load_victim(ref)


def test_missing_files(tmp_path):
    with pytest.raises(CardError, match="nowhere"):
        load_victim(f"card:{tmp_path}/nowhere")
    with pytest.raises(CardError, match="nowhere"):
        load_victim(f"sb3:{tmp_path}/nowhere.zip")
    with pytest.raises(CardError, match="nowhere is no checkpoint"):
        load_victim(f"rllib:{tmp_path}/nowhere")
    for ref in ("sb3:nowhere.zip", "rllib:nowhere"):
        with pytest.raises(VictimError, match="float32"):
            load_victim(ref, dtype=torch.float64)


def test_dictionaries_hold_victims_by_reference_and_hash(shelf):
    data = encode(load_victim("zoo:small"))
    assert decode(data, load_victim).fingerprint() == data["sha256"]
    weights = {"policy.0.weight": torch.zeros(2, 4), "policy.0.bias": torch.zeros(2)}
    save_file(weights, shelf / "zoo/small/weights.safetensors")
    with pytest.raises(VictimError, match="changed"):
        decode(data, load_victim)


def test_every_shipped_agent_loads():
    for name in zoo_names():
        victim = load_victim(f"zoo:{name}")
        x = torch.zeros(2, *victim.observation_space.shape)
        assert torch.isfinite(victim.params(x, victim.initial_state(2))).all()


def test_a_device_without_numbers_is_none():
    with pytest.raises(VictimError, match="no such device 'meta'"):
        load_victim("zoo:cartpole-dqn", device="meta")


def test_what_was_meant_is_said(shelf, tmp_path):
    with pytest.raises(VictimError, match="did you mean zoo:small"):
        load_victim("zoo:smal")
    with pytest.raises(VictimError, match=r"did you mean sb3:agent\.zip"):
        load_victim("agent.zip")
    (tmp_path / "agent.zip").write_bytes(b"no zip")
    with pytest.raises(CardError, match=r"agent\.zip"):  # found without its ending
        load_victim(f"sb3:{tmp_path}/agent")


def test_an_unknown_way_to_act_is_no_fault_of_a_file():
    with pytest.raises(VictimError, match=r"^select must be 'mode' or 'sample', got 'best'$"):
        load_victim("zoo:cartpole-dqn", select="best")
