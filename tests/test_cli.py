"""The command line: plain output, clear errors, files where they were asked for."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest
from click.testing import CliRunner

from adv_wrappers.cli import evaluate as evaluation
from adv_wrappers.cli import main
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.studies import SuiteReport
from adv_wrappers.threats.presets import presets
from adv_wrappers.victims import zoo_names
from tests.episodes import short_episodes_of
from tests.every_case import every_case
from tests.processes import python


@pytest.fixture(autouse=True)
def short_episodes() -> Iterator[None]:
    """Episodes of at most 60 steps, instead of 500 or 200."""
    with short_episodes_of(60, "CartPole-v1", "MountainCar-v0"):
        yield


def test_threats_as_a_module() -> None:
    done = python("import runpy; runpy.run_module('adv_wrappers', run_name='__main__', alter_sys=True)", "threats")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in presets)
    assert "\x1b" not in done.stdout and "restarts=3" in done.stdout


def test_victims_lists_the_zoo() -> None:
    done = CliRunner().invoke(main, ["victims"])
    assert done.exit_code == 0 and all(f"zoo:{name}" in done.output for name in zoo_names())


def test_evaluate_writes_a_table_a_report_and_a_figure(tmp_path: Path) -> None:
    words = "evaluate CartPole-v1 --victim zoo:cartpole-dqn --threat pgd:eps=0.3 --threat noise:eps=0.1 --episodes 2"
    done = CliRunner().invoke(main, [*words.split(), "--seed", "5", "--num-envs", "2", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    assert "zoo:cartpole-dqn on CartPole-v1, 2 episodes, seed 5" in done.output and "\x1b" not in done.output
    note = "† no interval of 95% (fewer than 10 episodes): 2 episodes miss an event of 1 in 20 in 90% of the runs"
    assert note in done.output.splitlines()
    report = Report.from_json(tmp_path / "o" / "report.json")
    assert [row["threat"] for row in report.threats] == ["none", "pgd:eps=0.3", "noise:eps=0.1"] and report.seed == 5
    assert (tmp_path / "o" / "returns.png").read_bytes()[1:4] == b"PNG"


def test_evaluate_measures_the_loss_of_states_and_the_best_of_several_draws(tmp_path: Path) -> None:
    words = "evaluate CartPole-v1 --victim zoo:cartpole-dqn --threat noise:eps=0.3 --episodes 2 --best-of 3 --by loss"
    done = CliRunner().invoke(main, [*words.split(), "--measure", "2=0.2", "--out", str(tmp_path)])
    assert done.exit_code == 0 and "noise:eps=0.3 (best of 3)" in done.output, done.output
    report = Report.from_json(tmp_path / "report.json")
    assert (report.measure, report.by) == ("2=0.2", "loss") and report.threats[1]["best_of"] == 3
    done = CliRunner().invoke(main, [*words.split(), "--measure", "own"])
    assert done.exit_code == 2 and "CartPole-v1 has no target of its own" in done.output


@every_case(("given", "kind"), [("worst-action", "argmin-Q agent"), ("3", "fixed"), (None, "fixed")])
def test_what_impact_counts_from(tmp_path: Path, given: str | None, kind: str) -> None:
    words = ["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "1", "--out", str(tmp_path)]
    words += ["--env-kwargs", "max_episode_steps=20"]
    done = CliRunner().invoke(main, [*words, *(["--minimum", given] if given else [])])
    assert done.exit_code == 0, done.output
    minimum = Report.from_json(tmp_path / "report.json").minimum
    assert minimum["kind"] == kind and minimum["value"] == {"3": 3, None: 0}.get(given, minimum["value"])


@every_case(
    ("words", "message"),
    [
        (
            ["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--minimum", "low"],
            "must be a finite number or 'worst-action'",
        ),
        (["CartPole-v1", "--victim", "zoo:nobody"], "no agent 'nobody'"),
        (["Acrobot-v1", "--victim", "zoo:cartpole-dqn"], "observation space"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--threat", "nonsense"], "unknown preset"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--device", "cuda:99"], "device"),
        (["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "0"], "--episodes"),
        (
            ["CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "9" * 20],
            "must be an integer from 1 to 1000000",
        ),
    ],
)
def test_errors_are_one_clear_line(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["evaluate", *words])
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert len([line for line in done.output.splitlines() if line.startswith("Error: ")]) == 1


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, victim, env, threats, _ = evaluation._DEMO[0]
    monkeypatch.setattr(evaluation, "_DEMO", ((name, victim, env, threats[:1], 1),))
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cartpole.json", "cartpole.png", "report.html"]
    assert (
        f"the page: {tmp_path / 'report.html'}" in done.output
        and "zoo:cartpole-dqn" in (tmp_path / "report.html").read_text()
    )


def test_look_writes_two_figures_and_a_table(tmp_path: Path) -> None:
    words = ["look", "adv_wrappers:adv-daylight/Pong-Rotation-v0", "--step", "1", "--threat", "shift"]
    out = tmp_path / "new" / "pong.png"
    done = CliRunner().invoke(main, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "Pong-Rotation-v0, step 1" in done.output
    assert "\x1b" not in done.output and "high band" in done.output and "shift dx=1" in done.output
    assert [p.name for p in sorted(out.parent.iterdir())] == ["pong-spectrum.png", "pong.png"]
    assert all(p.read_bytes()[1:4] == b"PNG" for p in out.parent.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CartPole-v1"], "only images can be looked at"),
        (["Nothing-v7"], "cannot make the environment"),
        (["PongNoFrameskip-v4", "--step", "0", "--threat", "fgsm:eps=1"], "needs a victim"),
        (["PongNoFrameskip-v4", "--step", "0", "--threat", "worst-action"], "perturbs the action"),
        (["PongNoFrameskip-v4", "--step", "-1"], "--step"),
    ],
)
def test_look_says_what_it_cannot_show(words: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["look", *words, "--out", str(tmp_path / "sheet.png")])
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert not list(tmp_path.iterdir())


def test_rows_so_far_are_printed_where_none_can_be_written(tmp_path: Path) -> None:
    """The disk is full (no file may grow) from the first episode on that is kept."""
    code = """
import os, resource, sys
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from adv_wrappers.cli import main

class Full(CartPoleEnv):
    def reset(self, **given):
        if sys.argv[1] == "evaluate" or os.path.exists(f"{sys.argv[-1]}/suite.json"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        return super().reset(**given)

gym.register("Full-v0", entry_point=Full, max_episode_steps=9)
main(sys.argv[1:])
"""
    out = tmp_path / "o"
    for words in ("evaluate Full-v0 --threat noise:eps=2", "suite Full-v0 --eps 2 --attack noise"):
        given = [*words.split(), "--victim", "zoo:cartpole-dqn", "--episodes", "2", "--out", str(out / words[:5])]
        done = python(code, *given)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert "zoo:cartpole-dqn on Full-v0" in done.stdout and " none " in done.stdout, done.stdout
        assert "Error: cannot write " in done.stderr, done.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words in (["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn"], [*SUITE, "--eps", "0.1"], ["demo"]):
        done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "file" / "under")])
        assert done.exit_code == 2 and "cannot write to the folder" in done.output and "Traceback" not in done.output
        assert "return" not in done.output


def test_look_writes_pictures_alone(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["look", "PongNoFrameskip-v4", "--out", str(tmp_path / "sheet.gif")])
    assert done.exit_code == 2 and "a picture is written as .png, .svg or .pdf, got" in done.output
    assert not list(tmp_path.iterdir())


def next_of(output: str) -> list[str]:
    """The words of the command that an output says comes next, without the program's own."""
    [line] = [line for line in output.splitlines() if line.startswith("evaluate with: ")]
    program, *words = shlex.split(line.removeprefix("evaluate with: "))
    assert program == "adv-wrappers"
    return words


def test_train_adversary_says_how_to_evaluate_what_it_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    words = "train-adversary CartPole-v1 --victim zoo:cartpole-a2c --kind sa-rl --eps 0.05 --steps 256 --num-envs 2"
    more = ["--checks", "2", "--episodes", "2", "--when", "every(2)", "--select", "mode", "--scale", "1;1;2;1"]
    done = CliRunner().invoke(main, [*words.split(), *more, "--out", "with, comma and space"])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.strip()[:3] in ("128", "256")]
    assert len(rows) == 2 and sum("*" in row for row in rows) == 1 and "\x1b" not in done.output
    again = CliRunner().invoke(main, [*next_of(done.output), "--episodes", "1", "--out", "o"])
    assert again.exit_code == 0, again.output
    row = Report.from_json("o/report.json").threats[1]
    assert row["threat"].startswith("learned:card=") and row["attacked_fraction"] == pytest.approx(0.5, abs=0.02)
    assert row["linf"] <= 0.1 + 1e-6 and Report.from_json("o/report.json").victim["select"] == "mode"


def test_train_adversary_that_learns_when_to_attack(tmp_path: Path) -> None:
    words = "train-adversary CartPole-v1 --victim zoo:cartpole-dqn --kind timed:worst-action --cost 2 --steps 128"
    words += " --num-envs 2 --checks 1 --episodes 2 --observe state+action+spent --device cpu"
    done = CliRunner().invoke(main, [*words.split(), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "state.json").read_text())["record"]
    assert "return + cost" in done.output and "by mean return and cost over 2 episodes" in done.output
    assert record[0]["score"] == record[0]["mean_return"] + 2 * record[0]["attacks"]


@pytest.mark.slow
def test_train_adversary_of_both_forms(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    words = "train-adversary CartPole-v1 --victim zoo:cartpole-a2c --eps 0.1 --form both --steps 64 --num-envs 1"
    done = CliRunner().invoke(main, [*words.split(), "--checks", "1", "--episodes", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.split()[:1] in (["direction"], ["target"])]
    assert [row[:2] for row in rows] == [["direction", "64"], ["target", "64"]] and sum("*" in row for row in rows) == 1
    assert next_of(done.output)[-1] == f"learned:card={tmp_path}"


def test_train_critic_and_a_scan_say_how_to_evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gym.registry, "Brief-v0", dataclasses.replace(gym.spec("Hopper-v5"), max_episode_steps=5))
    monkeypatch.setattr("adv_wrappers.training.models.robust_sarsa.EPOCHS", 1)
    words = ["train-critic", "Brief-v0", "--victim", "zoo:hopper-ppo", "--steps", "64", "--num-envs", "2"]
    done = CliRunner().invoke(main, [*words, "--one", "--out", str(tmp_path / "one")])
    assert done.exit_code == 0 and "robustness" in done.output, done.output
    assert next_of(done.output)[-1] == f"robust-sarsa:critic={tmp_path / 'one'},eps=EPS"
    scan = ["--eps", "0.1", "--scale", "victim", "--episodes", "1", "--out", str(tmp_path / "all")]
    done = CliRunner().invoke(main, [*words, *scan])
    assert done.exit_code == 0 and "best of 4 critics" in done.output, done.output
    assert next_of(done.output)[-1] == f"robust-sarsa:critic={tmp_path / 'all'},eps=0.1,scale=victim"
    again = CliRunner().invoke(main, [*next_of(done.output), "--episodes", "1"])
    assert again.exit_code == 0 and "robust-sarsa:critic=" in again.output, again.output


@pytest.mark.slow
def test_suite_of_everything_says_what_it_trains(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    words = "suite CartPole-v1 --victim zoo:cartpole-dqn --episodes 1 --attack worst-action --attack induce --steps 512"
    done = CliRunner().invoke(main, [*words.split(), "--suite", "everything", "--no-train"])
    assert done.exit_code == 0 and "induce: left out: it is trained" in done.output, done.output
    assert "trains" not in done.output and "everything suite: zoo:cartpole-dqn on CartPole-v1" in done.output
    done = CliRunner().invoke(main, [*words.split(), "--suite", "action", "--train", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("trains induce: about 512 steps each; --no-train (train=False) leaves them out\n")
    assert SuiteReport.from_json(tmp_path / "report.json").attacks == ("worst-action", "induce")


TRAIN = ["train-adversary", "CartPole-v1", "--victim", "zoo:cartpole-a2c", "--eps", "0.1"]
CRITIC = ["train-critic", "Hopper-v5", "--victim", "zoo:hopper-ppo"]
MEASURE = [
    "resilience", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--steps", "64", "--num-envs", "2", "--checks", "1",
    "--episodes", "2",
]  # fmt: skip
SUITE = ["suite", "CartPole-v1", "--victim", "zoo:cartpole-dqn"]
DYNAMICS = ["train-dynamics", "Hopper-v5", "--victim", "zoo:hopper-ppo"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TRAIN, "--kind", "pa-bd"], "unknown actor 'pa-bd'"),
        ([*TRAIN, "--algorithm", "acktr"], "algorithm must be one of 'ppo', 'a2c', 'dqn'"),
        ([*TRAIN, "--scale", "victim"], "--scale victim needs a victim with a unit of its own"),
        ([*TRAIN, "--when", "never again"], "cannot read the timing"),
        ([*TRAIN, "--steps", "0"], "--steps"),
        (TRAIN[:-2], "needs a budget"),
        ([*TRAIN, "--seed", "9" * 20], "seed must be an integer from 0 to"),
        ([*CRITIC, "--one", "--seed", "9" * 20], "seed must be an integer from 0 to"),
        ([*CRITIC, "--one", "--eps", "0.1"], "one critic is not attacked with"),
        ([*CRITIC, "--eps", "0.1", "--one"], "one critic is not attacked with"),
        ([*CRITIC, "--scale", "victim"], "--scale victim needs --eps beside it"),
        (["train-critic", "CartPole-v1", "--victim", "zoo:cartpole-dqn"], "continuous actions"),
        (["train-critic", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--one"], "continuous actions"),
        ([*MEASURE, "--cost", "-1"], "--cost must be a finite number from 0 to 1e+12"),
        ([*MEASURE, "--how", "max-diff"], "needs a budget"),
        (
            [*MEASURE, "--any-action", "--by", "q"],
            "--by finds the worst action, --any-action leaves it to",
        ),
        ([*MEASURE, "--transfer", "zoo:nobody"], "no agent 'nobody'"),
        (["robustness", *MEASURE[1:]], "--budget"),
        (["robustness", *MEASURE[1:], "--budget", "2.5"], "--budget"),
        ([*SUITE, "--eps", "-1"], "eps"),
        ([*SUITE, "--eps", "1", "--episodes", "9" * 20], "must be an integer from 1 to 1000000"),
        ([*SUITE, "--eps", "0.1", "--attack", "pa-bd"], "pa-bd"),
        ([*SUITE, "--suite", "all"], "--suite"),
        ([*SUITE, "--suite", "action", "--attack", "pgd"], "out of action-noise"),
        (SUITE, "it needs a budget"),
        ([*SUITE, "--eps", "0.1", "--attack", "robust-sarsa"], "no attack applies: robust-sarsa"),
        ([*SUITE, "--eps", "0.1", "--scale", "0"], "a budget that allows a change"),
        ([*TRAIN, "--scale", "0"], "a budget that allows a change"),
        ([*CRITIC, "--eps", "0"], "a budget that allows a change"),
        ([*TRAIN, "--steps", "9" * 30], "--steps must be an integer from 1 to 1000000000000"),
        ([*TRAIN, "--num-envs", "9" * 30], "--num-envs must be an integer from 1 to 65536"),
        ([*TRAIN, "--num-envs", "70000"], "--num-envs must be an integer from 1 to 65536"),
        ([*TRAIN, "--episodes", "9" * 30], "--episodes must be an integer from 1 to 1000000"),
        ([*TRAIN, "--cost", "1e308"], "--cost must be a finite number from 0 to 1e+12"),
        ([*MEASURE, "--r-max", "1e308"], "--r-max must be a finite number from -1e+12 to 1e+12"),
        (["robustness", *MEASURE[1:], "--budget", "9" * 30], "--budget must be an integer from 1 to 1000000000"),
        ([*CRITIC, "--one", "--num-envs", "9" * 30], "--num-envs must be an integer from 1 to 65536"),
        ([*DYNAMICS, "--layers", "9" * 30], "--layers"),
        ([*DYNAMICS, "--width", "9" * 30], "hidden must be a list, each an integer from 1 to 65536"),
        ([*DYNAMICS, "--epochs", "9" * 30], "--epochs must be an integer from 1 to 1000000"),
        ([*DYNAMICS, "--transitions", "9" * 30], "--transitions must be an integer from 100 to 1000000000000"),
    ],
)
def test_training_commands_say_what_cannot_work(words: list[str], message: str, tmp_path: Path) -> None:
    if words[0] in ("train-adversary", "resilience", "robustness"):
        pytest.importorskip("stable_baselines3")
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert len([line for line in done.output.splitlines() if line.startswith("Error: ")]) == 1
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.slow
def test_resilience_prints_table_6_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    out = tmp_path / "out"
    done = CliRunner().invoke(main, [*MEASURE, "--transfer", "zoo:cartpole-dqn", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "resilience of zoo:cartpole-dqn on CartPole-v1, 2 episodes" in done.output and "(transfer)" in done.output
    assert "max. regret" in done.output and "return + cost" in done.output and "\x1b" not in done.output
    names = ["adversary", "histogram.png", "resilience.json", "state.json", "training.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert all((out / name).read_bytes()[1:4] == b"PNG" for name in names if name.endswith(".png"))
    robust = ["robustness", *MEASURE[1:], "--budget", "2", "--hard", "--out", str(tmp_path / "robust")]
    done = CliRunner().invoke(main, robust)
    assert done.exit_code == 0 and "at 2 perturbations (hard)" in done.output, done.output


def test_training_needs_sb3_a_folder_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, [*TRAIN, "--out", str(tmp_path / "file" / "under")])
    assert done.exit_code == 2 and "cannot write to the folder" in done.output
    assert "--out" in CliRunner().invoke(main, TRAIN).output
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    for name in [name for name in sys.modules if name.startswith("adv_wrappers.training.")]:
        monkeypatch.delitem(sys.modules, name)  # which may hold names of it already
    for words in (TRAIN, ["train-agent", "CartPole-v1", "--adversary", "none"], [*SUITE, "--eps", "0.1"], MEASURE):
        done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "out")])
        assert done.exit_code == 2 and "pip install 'adv_wrappers[sb3]'" in done.output


def test_stats_of_a_victim(tmp_path: Path) -> None:
    """Statistics on the command line are the victim's, and what it prints to go on with holds them."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    sb3.PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu").learn(8).save(tmp_path / "model.zip")
    env.save(str(tmp_path / "norm.pkl"))
    words = ["CartPole-v1", "--victim", f"sb3:{tmp_path / 'model.zip'}", "--stats", str(tmp_path / "norm.pkl")]
    words += ["--episodes", "2", "--num-envs", "2"]
    done = CliRunner().invoke(main, ["evaluate", *words, "--threat", "noise:eps=0.1,scale=victim"])
    assert done.exit_code == 0, done.output
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # as warnings are shown, and not the errors that they are in tests
        done = CliRunner().invoke(main, ["evaluate", *words[:3], "--episodes", "1"])
    assert done.exit_code == 0 and done.stderr.count("VecNormalize") == 1, done.output
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("warning: ") and "model_vecnormalize.pkl" in warning
    assert "Give --stats FILE, or sb3:FILE.zip?stats=none (in" in warning
    done = CliRunner().invoke(main, ["evaluate", *words[:-5], "nowhere.pkl"])
    assert done.exit_code == 2 and "nowhere.pkl" in done.output
    given = ["--eps", "0.1", "--scale", "victim", "--kind", "sa-rl", "--steps", "32", "--checks", "1"]
    done = CliRunner().invoke(main, ["train-adversary", *words, *given, "--out", str(tmp_path / "sa-rl")])
    assert done.exit_code == 0, done.output
    command = done.output.splitlines()[-1]
    assert f"sb3:{tmp_path / 'model.zip'}?stats={tmp_path / 'norm.pkl'}" in shlex.split(command)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are texts")
def test_a_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are surrogates in Python, which no output encodes."""
    out = tmp_path / "rows\udcff"
    words = ["evaluate", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--episodes", "1", "--out", str(out)]
    done = CliRunner().invoke(main, [*words, "--env-kwargs", "max_episode_steps=3"])
    assert done.exit_code == 0 and "rows\\udcff" in done.output, done.output
    assert (out / "report.json").exists()
