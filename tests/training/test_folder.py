"""The folder of a training: what it keeps, what it resumes from, and what tells one training from another."""

from __future__ import annotations

import functools
import json
import re
import shutil
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import CardError, ValueRangeError
from adv_wrappers.training import folder as folder_module
from adv_wrappers.training.agent import AdversarySpec
from adv_wrappers.training.folder import (
    TrainingFolder,
    described,
    described_victim,
    functions_of,
    read_tensors,
    warn_of_unknown,
    write_tensors,
)
from adv_wrappers.utils.reading import check_same
from tests.evaluation.agents import balancing, short
from tests.every_case import every_case


def agent(kind=nn.Tanh):
    torch.manual_seed(0)
    env = short()
    net = nn.Sequential(nn.Linear(4, 8), kind(), nn.Linear(8, 2))
    return adv.from_module(net, env.observation_space, env.action_space, "logits")


def law():
    env = short()
    return adv.from_module(lambda x: x[:, :2], env.observation_space, env.action_space, "logits")


def never(x, context):
    return torch.zeros(len(x), dtype=torch.bool)


def always(x, context):
    return torch.ones(len(x), dtype=torch.bool)


def test_victims_of_equal_weights_differ_by_their_structure(tmp_path):
    one, other = ({"victim": described_victim(agent(kind))} for kind in (nn.Tanh, nn.ReLU))
    check_same(tmp_path, one, {"victim": described_victim(agent())})
    with pytest.raises(ValueRangeError, match=r"holds another training, with victim\.structure"):
        check_same(tmp_path, one, other)


@pytest.mark.parametrize("change", [{"steps": 9}, {"when": always}, {"director": 2.0}])
def test_threats_without_a_json_form_are_told_apart(change):
    how = {"steps": 3, "when": never, "director": 1.0} | change

    def spec(steps, when, director):
        if "director" in change:
            net = nn.Linear(4, 4)
            for weight in net.parameters():
                nn.init.constant_(weight, director)
            learned = adv.Learned(net, decode({"type": "sa-rl"}), victim=balancing(), within=adv.Linf(0.1))
            return AdversarySpec.parse(learned, None, None)
        threat = ThreatModel("observation", adv.MaxDiff(steps=steps), adv.Linf(0.1), when)
        return AdversarySpec.parse(threat, None, None)

    first, other = spec(3, never, 1.0).describe(), spec(**how).describe()
    assert json.loads(json.dumps(first)) == first != other
    assert first == spec(3, never, 1.0).describe()


def test_functions_of_a_threat():
    threat = ThreatModel("observation", adv.MaxDiff(), adv.Linf(0.1), never)
    assert functions_of(threat) == [never] and described(never) == f"{__name__}:never"
    assert functions_of(adv.threat("max-diff", eps=0.1, when="every(2)")) == []


def test_a_folder_that_cannot_tell_is_gone_on_with_and_said(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown(tmp_path, law(), Environment(short))  # it is empty
        (tmp_path / ".lock").touch()
        warn_of_unknown(tmp_path, law(), Environment(short))
        warn_of_unknown(None, law(), Environment(short))
        (tmp_path / "card.json").touch()
        warn_of_unknown(tmp_path, agent(), Environment(short, {"n": 3}))
    for victim, env in ((law(), short), (agent(), lambda: short())):
        with pytest.warns(RuntimeWarning, match="cannot tell a victim that is a function, or an environment"):
            warn_of_unknown(tmp_path, victim, Environment(env))


# what is kept


def parts_of(folder, name):
    """What a checkpoint consists of here: its card is its name."""
    part = folder.begin_checkpoint(int(name))
    for file in ("card.json", "weights.safetensors", "model"):
        (part / file).write_text(name)
    return part


def names_in(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_the_last_checkpoint_and_the_best_are_kept(tmp_path):
    folder = TrainingFolder(tmp_path, "agent", {"seed": 3})
    for steps, best in ((10, True), (20, False), (30, True), (40, False), (50, False)):
        folder.add({"steps": steps, "score": 1.5}, parts_of(folder, str(steps)), best)
    again = TrainingFolder(tmp_path, "agent", {"seed": 3})
    for one in (folder, again):
        assert [row["steps"] for row in one.record] == [10, 20, 30, 40, 50] and one.best == 2
        assert one.best_row == {"steps": 30, "score": 1.5} and not one.finished and one.result == {}
        assert one.checkpoint == tmp_path / "checkpoint-50" and one.about == {"seed": 3}
    assert {path.name for path in tmp_path.glob("[!.]*")} == {
        "card.json", "checkpoint-30", "checkpoint-50", "state.json", "weights.safetensors",
    }  # fmt: skip
    assert (tmp_path / "card.json").read_text() == (tmp_path / "weights.safetensors").read_text() == "30"
    again.finish(agreement=0.5)
    assert names_in(tmp_path) == ["card.json", "state.json", "weights.safetensors"]
    last = TrainingFolder(tmp_path, "agent", {"seed": 3})
    assert last.finished and last.checkpoint is None and last.result == {"agreement": 0.5} and last.best == 2


def test_without_a_folder_everything_is_kept_in_memory():
    folder = TrainingFolder(None, "critic", {"env": object()})
    assert folder.begin_checkpoint(3) is None
    folder.add({"steps": 3}, None, best=True)
    folder.keep("played", b"")
    folder.finish(found=1)
    assert folder.best_row == {"steps": 3} and folder.result == {"found": 1} and folder.finished


class Killed(BaseException):
    """What ends a process between two files."""


@pytest.mark.parametrize("finishing", [False, True])
def test_a_training_that_is_killed_between_any_two_files_goes_on_from_a_whole_checkpoint(
    tmp_path, monkeypatch, finishing
):
    left = [0]  # calls until the kill

    def stopping(function, *given, **more):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return function(*given, **more)

    for at in range(1, 100):
        place = tmp_path / str(at)
        folder = TrainingFolder(place, "agent", {})
        folder.add({"steps": 1}, parts_of(folder, "1"), True)
        folder.add({"steps": 2}, parts_of(folder, "2"))
        part = parts_of(folder, "3")
        left[0] = at
        with monkeypatch.context() as patched:
            writing = ((folder_module, name) for name in ("rename_file", "write", "write_json"))
            for module, name in (*writing, (shutil, "rmtree")):
                patched.setattr(module, name, functools.partial(stopping, getattr(module, name)))
            try:
                if finishing:
                    folder.finish()
                else:
                    folder.add({"steps": 3}, part, True)
                break
            except Killed:
                pass
        again = TrainingFolder(place, "agent", {})
        again.remove_parts()
        assert len(again.record) in (2, 3) and again.best in (0, 2)
        if again.finished:
            assert names_in(place) == ["card.json", "state.json", "weights.safetensors"]
            continue
        steps = again.record[-1]["steps"]
        assert (again.checkpoint / "model").read_text() == str(steps)
        assert (place / "card.json").read_text() == (place / "weights.safetensors").read_text()
        assert (place / "card.json").read_text() == str(again.best_row["steps"])
        kept = {path.name for path in place.glob("checkpoint-*")}
        assert kept == {f"checkpoint-{steps}", f"checkpoint-{again.best_row['steps']}"}
    assert at > 3


def test_files_of_a_trainings_own_come_after_what_says_whose_they_are(tmp_path, monkeypatch):
    folder, written = TrainingFolder(tmp_path / "new", "dynamics", {"seed": 0}), []
    for name in ("write", "write_json"):
        write = getattr(folder_module, name)
        noted = functools.partial(lambda write, path, data: (written.append(path.name), write(path, data)), write)
        monkeypatch.setattr(folder_module, name, noted)
    folder.keep("played", b"one")
    folder.keep("played", b"other")
    assert written == ["state.json", "played", "played"]
    assert (tmp_path / "new" / "played").read_bytes() == b"other"
    with pytest.raises(ValueRangeError, match="holds another training, with seed 0 and not 1"):
        TrainingFolder(tmp_path / "new", "dynamics", {"seed": 1})
    with pytest.raises(ValueRangeError, match="holds the training of a model of the dynamics, and not the imitation"):
        TrainingFolder(tmp_path / "new", "imitation", {"seed": 0})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "expected a training in format 1, got 'agent', 2"), ({"kind": "dance"}, "got 'dance', 1"),
        ({"record": 3}, "as the state of a training"), ({"best": 1}, "as the state of a training"),
        ({"record": [{"steps": 4}]}, "names checkpoint-4, which is not there"),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_read_is_named(tmp_path, change, words):
    folder = TrainingFolder(tmp_path, "agent", {})
    folder.add({"steps": 1}, parts_of(folder, "1"), True)
    state = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps(state | change))
    with pytest.raises(CardError, match=words):
        TrainingFolder(tmp_path, "agent", {})


@every_case("value", [object(), np.int64(3), np.inf, {(1, 2): 3}, [1.0, np.nan]])
def test_what_json_cannot_hold_is_named(tmp_path, value):
    with pytest.raises(ValueRangeError, match=r"a folder keeps what JSON can hold, not environment\.kwargs\.x"):
        TrainingFolder(tmp_path / "a", "agent", {"environment": {"kwargs": {"x": value}}})
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"card.json": {"name": "hopper", "network": {"kind": "gaussian-mlp"}}}, "(the card of a victim) belongs to"),
        ({"card.json": {"format": 3, "role": "director", "network": []}}, "(the card of a director) belongs to"),
        (
            {"state.json": {"kind": "adversary", "about": {}}},
            "holds the training of an adversary, and not the training",
        ),
        ({"card.json": [3]}, "card.json belongs to something else, which"),
        ({"report.json": {}}, "report.json belongs to something else, which"),
    ],
)
def test_a_folder_of_something_else_is_left_alone(tmp_path, files, word):
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    with pytest.raises(ValueRangeError, match=f"{re.escape(word)}.*give another"):
        TrainingFolder(tmp_path, "critic", {})
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == files


def optimizer_and_network():
    torch.manual_seed(1)
    network = nn.Linear(3, 2)
    return torch.optim.Adam(network.parameters(), lr=0.1, betas=(0.8, 0.99)), network


def descend(optimizer, network):
    optimizer.zero_grad()
    network(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()


def test_the_state_of_an_optimizer_comes_back_to_the_bit(tmp_path):
    optimizer, network = optimizer_and_network()
    for _ in range(3):
        descend(optimizer, network)
    write_tensors(tmp_path, {"network": network.state_dict(), "optimizers": [optimizer.state_dict()], "text": ("a", 1)})
    state = read_tensors(tmp_path)
    path = tmp_path / "state.safetensors"
    with path.open("r+b") as file:  # what was read is no memory of the file
        file.write(bytes(path.stat().st_size))
    other, own = optimizer_and_network()
    own.load_state_dict(state["network"])
    other.load_state_dict(state["optimizers"][0])
    assert state["text"] == ["a", 1] and other.param_groups[0]["lr"] == 0.1
    for _ in range(2):
        descend(optimizer, network)
        descend(other, own)
    assert torch.equal(network.weight, own.weight) and torch.equal(network.bias, own.bias)
    with pytest.raises(CardError, match=r"cannot read .*state\.safetensors"):
        read_tensors(tmp_path)
