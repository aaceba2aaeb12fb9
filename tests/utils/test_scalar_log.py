"""Numbers are written to TensorBoard, Weights & Biases and MLflow, and read back from where each of them keeps them."""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, OutputError, ValueRangeError
from adv_wrappers.utils.scalar_log import optional_log, scalar_log

TAG = "mean_return/pgd:eps=0.1,when=every(2)"


def scalars(folder):
    """What TensorBoard shows of a folder: the pairs of step and value by tag."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(at.step, at.value) for at in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def rows_of_wandb(folder):
    """The rows of the one offline run in a folder, from its file: blocks of 32 KiB, of records behind 7 bytes each."""
    import wandb
    from wandb.proto import wandb_internal_pb2 as messages

    wandb.teardown()  # ends the process that writes the file
    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    data, place, found, record = path.read_bytes(), 7, [], b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # all of a record, or its last part
            message, record = messages.Record.FromString(record), b""
            items = [(item.key or "/".join(item.nested_key), item.value_json) for item in message.history.item]
            found += [{key: json.loads(value) for key, value in items if not key.startswith("_")}] if items else []
    return found


@pytest.fixture
def wandb_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="tests", mode="offline", dir=str(tmp_path)) as run:
        yield run


@pytest.fixture
def mlflow_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_experiment("tests")
    with mlflow.start_run() as run:
        yield run


def metrics_of(run, name):
    import mlflow

    return [(metric.step, metric.value) for metric in mlflow.MlflowClient().get_metric_history(run.info.run_id, name)]


def test_a_folder_has_numbers_at_once(tmp_path):
    write = scalar_log(tmp_path / "run")
    write({TAG: 2.5}, 10)
    write({TAG: 1.5, "attack/flips": 0.25}, 5)
    assert scalars(tmp_path / "run") == {TAG: [(10, 2.5), (5, 1.5)], "attack/flips": [(5, 0.25)]}


def test_a_run_of_weights_and_biases_keeps_numbers_of_earlier_steps(wandb_run, tmp_path):
    write = scalar_log(wandb_run)
    write({TAG: 2.5, "report": "| a |"}, 10)
    write({TAG: 1.5}, 5)
    wandb_run.finish()
    assert rows_of_wandb(tmp_path) == [{TAG: 2.5, "report": "| a |", "global_step": 10}, {TAG: 1.5, "global_step": 5}]


def test_a_run_of_mlflow_has_names_that_it_allows(mlflow_run, tmp_path):
    write = scalar_log(mlflow_run)
    write({TAG: 2.5, "report": "| a |"}, 10)
    write({TAG: 1.5}, 5)
    assert sorted(metrics_of(mlflow_run, "mean_return/pgd_eps_0.1_when_every_2_")) == [(5, 1.5), (10, 2.5)]
    [table] = tmp_path.rglob("report.md")
    assert table.read_text() == "| a |"


def test_what_a_report_writes(mlflow_run):
    report = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", "noise:eps=0.2", episodes=2, seed=0)
    report.log(mlflow_run, 7)
    for row, name in zip(report.threats, ("none", "noise_eps_0.2"), strict=True):
        assert metrics_of(mlflow_run, f"mean_return/{name}") == [(7, row["mean_return"])]


def test_what_a_training_writes(wandb_run, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, seed=0)
    callback = adv.RobustnessCallback("noise:eps=0.2", every=64, episodes=2, log=wandb_run)
    model.learn(128, callback=callback)
    wandb_run.finish()
    found = rows_of_wandb(tmp_path)
    assert [row["global_step"] for row in found] == [64, 128]
    for row, clean, attacked in zip(found, callback.rows[::2], callback.rows[1::2], strict=True):
        assert row["robustness/clean"] == clean["return"]
        assert row["robustness/noise:eps=0.2/flips"] == attacked["flips"]


def test_what_is_no_log(tmp_path, monkeypatch):
    assert optional_log(None) is None
    with pytest.raises(ValueRangeError, match=r"a folder, a SummaryWriter, or a run of .* MLflow, got 3"):
        scalar_log(3)
    with pytest.raises(ValueRangeError, match="got None"):
        scalar_log(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to the folder"):
        scalar_log(tmp_path / "file")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(AdvWrappersError, match=r"pip install 'adv_wrappers\[tensorboard\]'"):
        scalar_log(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_older_names(tmp_path):
    with pytest.warns(DeprecationWarning, match="tensorboard= is now log="):
        env = adv.RecordAttackStatistics(
            adv.wrap(gym.make("CartPole-v1", max_episode_steps=1), "noise:eps=0.1"), tensorboard=tmp_path / "steps"
        )
    env.reset(seed=0)
    env.step(0)
    assert scalars(tmp_path / "steps")["attack/length"] == [(1, 1)]
    report = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", episodes=1, seed=0)
    with pytest.warns(DeprecationWarning, match=r"now log\(folder, step\)"):
        report.to_tensorboard(tmp_path / "report", 3)
    assert scalars(tmp_path / "report")["mean_return/none"] == [(3, report.threats[0]["mean_return"])]
