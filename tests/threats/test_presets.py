"""Presets by name, and the text form."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.serialization import Value, decode
from adv_wrappers.errors import AdvWrappersError, BudgetError, ThreatError, VictimError
from adv_wrappers.registry import names_without_importing
from adv_wrappers.threats.presets import Preset, PresetTable, as_threat, names, parse_threat
from tests.every_case import every_case
from tests.laws.checks import adversary_of, model_of
from tests.rigs import RIGS, vector
from tests.studies.report.planted import agent_for, showing


def test_the_same_arguments_mean_the_same_everywhere():
    victim = RIGS["q"].victim()
    for name in names("observation"):
        own = {"game": "Pong", "transform": "jpeg"} if name == "daylight" else {}
        own |= {"card": adversary_of("q")} if name == "learned" else {}
        if name == "model-based":
            own |= {"dynamics": model_of(RIGS["mean"].space, RIGS["mean"].actions), "target": "0=1"}
        try:
            made = adv.threat(name, victim, eps=0.25, when="every(2)", p=0.5, at="a", **own)
        except VictimError:
            made = adv.threat(name, RIGS["mean"].victim(), eps=0.25, when="every(2)", p=0.5, at="a", **own)
        assert made.within == adv.Linf(0.25) and made.at == "a"
        assert made.when == adv.Bernoulli(0.5) & adv.Every(2)
    assert adv.threat("noise", eps=2, norm="l2").within == adv.L2(2.0)
    assert adv.threat("noise", eps=2, norm="l0").within == adv.L0(2)
    assert adv.threat("noise", norm="valid").within == adv.Valid()
    assert adv.threat("noise", eps=1, within=adv.L2(3)).within == adv.L2(3.0)
    assert adv.threat("noise", eps=1, newest=True).within == adv.Newest(adv.Linf(1.0))
    assert adv.threat("rotation", newest=True).within == adv.Newest(adv.Valid())
    with pytest.raises(BudgetError, match="newest must be true or false, got 2"):
        adv.threat("rotation", newest=2)


def test_every_perturbation_has_a_preset_under_its_name():
    kinds = {preset.kind for preset in adv.presets.values()}
    for kind in kinds:
        assert adv.presets[kind.name].kind is kind and not adv.presets[kind.name].arguments
    for name, preset in adv.presets.items():
        assert preset.summary.endswith("."), name


@every_case(
    ("text", "expected"),
    [
        ("noise:eps=0.5", {"within": adv.Linf(0.5)}),
        (" noise : eps = 0.5 , kind = sign ", {"within": adv.Linf(0.5), "how": adv.Noise("sign")}),
        ("noise:eps=1,scale=1;2.5;0", {"within": adv.Linf(1.0, (1.0, 2.5, 0.0))}),
        ("noise:eps=1,scale=victim", {"within": adv.Linf(1.0, "victim")}),
        ("noise:eps=1,at=a;b", {"at": ("a", "b")}),
        ("noise:eps=1,at='x,y'", {"at": "x,y"}),
        ("noise:eps=1,when='window(1,3)'", {"when": adv.Window(1, 3)}),
        ("noise:eps=1,when=window(1,3)", {"when": adv.Window(1, 3)}),
        ("noise:eps=1,when=bernoulli(0.1)&atmost(7)", {"when": adv.Bernoulli(0.1) & adv.AtMost(7)}),
        ("noise:eps=1,when=~every(2)|never,p=0.5", {"when": adv.Bernoulli(0.5) & (~adv.Every(2) | adv.Never())}),
        ("noise:eps=1e-3,when=None", {"within": adv.Linf(0.001)}),
        ("noise:norm=l0,eps=3", {"within": adv.L0(3)}),
        ("fgsm:eps=1,steps=4,random_start=true", {"how": adv.MinBest(None, 4, 1.0, True)}),
        ("fgsm:eps=1", {"how": adv.MinBest()}),
        ("action-noise", {"within": adv.Valid(), "on": "action"}),
        ("action-noise:", {"within": adv.Valid()}),
        ("worst-action:by=policy", {"how": adv.WorstAction(by="policy")}),
    ],
)
def test_texts(text, expected):
    if "when=None" in text:
        with pytest.raises(ThreatError, match="cannot read the timing 'None'"):
            parse_threat(text)
        return
    made = parse_threat(text)
    for name, value in expected.items():
        assert getattr(made, name) == value, name


@every_case(
    ("text", "says"),
    [
        ("nois:eps=1", "known: "),
        ("pa-ad:eps=0.1", "that is trained: train_adversary"),
        ("forces:eps=0.1", "that is trained: train_adversary"),
        ("noise", "needs a budget"),
        ("noise:eps", "key=value"),
        ("noise:eps=1,eps=2", "twice"),
        ("noise:eps=1,steps=3", "not steps"),
        ("noise:eps=1,name=x", "not name"),
        ("noise:eps='1", "unbalanced"),
        ("noise:eps=(1", "unbalanced"),
        ("noise:norm=l3,eps=1", "norm"),
        ("noise:norm=valid,eps=1", "no eps"),
        ("noise:norm=l2,eps=1,scale=2", "scale belongs"),
        ("noise:eps=a", "number"),
        ("noise:eps=1,when=often", "known are"),
        ("noise:eps=1,when=every", "every"),
        ("noise:eps=1,when=every(x)", "numbers"),
        ("noise:eps=1,p=2", "p must be"),
        ("noise:eps=1,kind=loud", "kind"),
        ("noise:1=2", "key=value"),
        ("", "unknown preset"),
        ("noise:victim=zoo:x,eps=1", "zoo"),
    ],
)
def test_errors_of_texts(text, says):
    with pytest.raises(adv.AdvWrappersError, match=says):
        parse_threat(text)


def test_what_is_given_beside_a_threat_takes_its_place():
    threat = as_threat("noise:eps=1,when=every(2)", within=adv.L2(3), when="never", at="k")
    assert (threat.within, threat.when, threat.at) == (adv.L2(3.0), adv.Never(), "k")
    again = as_threat(threat.to_dict(), within=adv.Linf(1))
    assert again.within == adv.Linf(1.0) and again.when == adv.Never()


def test_a_victim_in_the_text_of_noise_lends_its_unit():
    """``scale=victim`` is resolved by the attack's own victim, else by the one it is set against."""
    victim = RIGS["mean"].victim()
    made = adv.threat("noise", victim, eps=0.1, scale="victim")
    assert made.within.scale == pytest.approx(tuple(victim.scale.tolist()))
    assert adv.threat("noise", eps=0.1, scale="victim").against(victim).within == made.within


def test_a_slip_of_the_pen_gets_a_hint() -> None:
    for name, meant in (("noize", "noise"), ("max_diff", "max-diff"), ("PGD", "pgd"), ("noise eps=0.1", "noise:...")):
        with pytest.raises(ThreatError, match=f"did you mean {meant}"):
            parse_threat(name)
    for name in ("FGSM:eps=0.1", "fgsm(eps=0.1)"):
        with pytest.raises(ThreatError, match="did you mean fgsm:"):
            adv.threat(name)
    with pytest.raises(AttributeError, match="pgd is a preset"):
        _ = adv.PGD
    with pytest.raises(AttributeError, match="did you mean Linf"):
        _ = adv.LInf


def test_a_text_is_no_name_of_a_preset() -> None:
    with pytest.raises(ThreatError, match=r"got the text 'noise:eps=0.1', .*: adv_wrappers.threat\('noise', eps="):
        adv.threat("noise:eps=0.1")


def test_fractions_are_numbers() -> None:
    assert parse_threat("noise:eps=8/255").budget == adv.Linf(8 / 255)
    with pytest.raises(BudgetError, match=r"eps must be .*8/0"):
        parse_threat("noise:eps=8/0")


@every_case("call", [
    lambda env, victim: adv.threat("fgsm", victim, eps=0.1),
    lambda env, victim: adv.wrap(env, "fgsm:eps=0.1", victim=victim),
    lambda env, victim: adv.wrap(env, "fgsm:eps=0.1"),
    lambda env, victim: adv.PerturbObservation(env, "fgsm:eps=0.1", victim=victim),
    lambda env, victim: adv.PerturbObservation(env, "fgsm:eps=0.1"),
    lambda env, victim: adv.evaluate(victim, lambda: env, "fgsm:eps=0.1", episodes=1),
])  # fmt: skip
def test_errors_name_the_preset_that_was_typed(call) -> None:
    with pytest.raises(VictimError, match=r"^fgsm(:eps=0\.1)?: min-best (is defined|needs a victim)"):
        call(RIGS["mean"].env(), RIGS["mean"].victim())


def test_a_budget_in_words_beside_a_threat() -> None:
    assert as_threat(adv.MinBest(), eps=0.1).within == adv.Linf(0.1)
    assert as_threat(adv.MinBest(), eps=2, norm="l2").within == adv.L2(2.0)
    assert as_threat("noise:eps=1,scale=2", eps=3).within == adv.Linf(3.0, 2.0)
    assert as_threat(lambda x, context: x, on="observation", eps=2, scale=(1, 2)).within == adv.Linf(2.0, (1.0, 2.0))
    ball = adv.ThreatModel("observation", adv.Noise(), adv.Newest(adv.L2(1)))
    assert as_threat(ball, eps=3).within == adv.Newest(adv.L2(3.0))
    assert as_threat(ball.to_dict(), eps=3, norm="linf").within == adv.Newest(adv.Linf(3.0))
    assert as_threat(adv.ThreatModel("observation", adv.Noise(), adv.Linf(1, 2)), scale=3).within == adv.Linf(1.0, 3.0)
    assert as_threat(adv.ThreatModel("observation", adv.daylight.Rotation()), eps=3).within == adv.Linf(3.0)
    with pytest.raises(BudgetError, match=r"given twice: within=Linf.*, and eps"):
        as_threat(adv.Noise(), within=adv.Linf(1), eps=2)
    with pytest.raises(BudgetError, match="needs a budget: eps="):
        as_threat(adv.Noise(), norm="l2")


@pytest.mark.parametrize("kind", ["env", "next", "sb3"])
def test_layers_take_a_budget_in_words(kind: str) -> None:
    rig = RIGS["mean"]
    env = rig.env() if kind == "env" else vector(kind, rig, 2)
    layer = adv.PerturbObservation(env, adv.Noise(), eps=0.1, scale=2)
    assert layer.threat.within == adv.Linf(0.1, 2.0)
    assert adv.PerturbAction(layer, adv.ActionNoise(), eps=0.2, norm="l2").threat.within == adv.L2(0.2)


def test_a_perturbation_is_no_name_of_a_preset() -> None:
    with pytest.raises(ThreatError, match="expected the name of a preset, got Noise"):
        adv.threat(adv.Noise())


# presets of installed packages


SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

from adv_wrappers.core.perturbation import Perturbation


@dataclass(frozen=True)
class Sag{n}(Perturbation):
    """Every feature sags by a hundredth."""

    name: ClassVar[str] = "{name}"
    depth: float = 0.01

    def __call__(self, x, context):
        return x - self.depth
'''


def install(folder: Path, package: str, source: str, points: str) -> None:
    """A distribution as pip would leave it: a module, and metadata with entry points."""
    (folder / f"{package}.py").write_text(source)
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[adv_wrappers.presets]\n{points}\n")


@pytest.mark.slow
def test_an_installed_package_adds_presets_to_texts_ids_dictionaries_and_suites(tmp_path: Path) -> None:
    source = SOURCE.format(n=1, name="lab-sag") + SOURCE.format(n=2, name="lab-deep-sag")
    install(tmp_path, "lab_attacks", source, "lab-sag = lab_attacks:Sag1\nall = lab_attacks")
    code = """
import sys
import gymnasium as gym
import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
assert "lab_attacks" not in sys.modules, "imported before anyone asked"
env = gym.make("adv_wrappers:adv/lab-sag-v0", env="CartPole-v1", eps=0.1)
assert "lab_attacks" in sys.modules and env.reset(seed=0)
assert {"lab-sag", "lab-deep-sag"} <= {*adv.presets} and "adv/lab-deep-sag-v0" in gym.registry
assert adv.threat("lab-deep-sag", eps=0.2).how.depth == 0.01
from adv_wrappers.cli import main
main(["threats"], standalone_mode=False)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(adv.__file__).parents[1]}"},
    )
    assert done.returncode == 0, done.stderr
    assert "lab-deep-sag" in done.stdout and "Every feature sags by a hundredth." in done.stdout


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PresetTable]:
    """A table of its own, which has read no entry points yet, and a folder that packages are found in."""
    monkeypatch.syspath_prepend(tmp_path)
    kinds = dict(Value.kinds)
    yield PresetTable({name: adv.presets[name] for name in ("noise", "pgd")})
    Value.kinds.clear()
    Value.kinds.update(kinds)


def test_packages_are_imported_where_a_name_is_unknown_or_all_are_listed(tmp_path: Path, table: PresetTable) -> None:
    install(tmp_path, "late_attacks", SOURCE.format(n=1, name="late-sag"), "late-sag = late_attacks:Sag1")
    assert "noise" in table and table["pgd"].on == "observation" and "late_attacks" not in sys.modules
    assert names_without_importing()[-1] == "late-sag" and "late_attacks" not in sys.modules
    assert table["late-sag"].summary == "Every feature sags by a hundredth."
    assert [*table] == ["noise", "pgd", "late-sag"] and len(table) == 3


@pytest.mark.usefixtures("table")
def test_a_dictionary_of_a_type_that_is_not_imported_yet_is_read(tmp_path: Path) -> None:
    install(tmp_path, "read_attacks", SOURCE.format(n=1, name="read-sag"), "read-sag = read_attacks:Sag1")
    assert decode({"type": "read-sag", "depth": 0.5}).depth == 0.5


def test_a_package_that_cannot_be_imported_is_one_warning(tmp_path: Path, table: PresetTable) -> None:
    install(tmp_path, "broken_attacks", "raise OSError('no camera')", "a = broken_attacks")
    install(tmp_path, "number_attacks", "three = 3", "b = number_attacks:three")
    install(tmp_path, "whole_attacks", SOURCE.format(n=1, name="whole-sag"), "c = whole_attacks")
    with pytest.warns(RuntimeWarning) as caught:
        assert [*table] == ["noise", "pgd", "whole-sag"]
    assert [str(warning.message) for warning in caught] == [
        "the presets broken_attacks of broken_attacks are left out: no camera",
        "the presets number_attacks:three of number_attacks are left out: expected a class of Perturbation, a list of "
        "them or a module with some, got 3",
    ]
    assert "whole-sag" in table and "other" not in table  # and no further warning


def test_a_name_that_is_taken_stays_with_whom_it_has(tmp_path: Path, table: PresetTable) -> None:
    variants = '    variants: ClassVar = {"pgd": ({"depth": 1.0}, "Deep.")}\n    depth: float'
    source = SOURCE.format(n=1, name="own-sag").replace("    depth: float", variants)
    install(tmp_path, "other_attacks", source, "own-sag = other_attacks:Sag1")
    with pytest.warns(RuntimeWarning, match="the preset pgd of other_attacks is left out: MinBest of adv_wrappers has"):
        assert [*table] == ["noise", "pgd", "own-sag"]
    assert table["pgd"] is adv.presets["pgd"]


def test_two_packages_with_one_class_name(tmp_path: Path, table: PresetTable) -> None:
    for package in ("first_attacks", "second_attacks"):
        install(tmp_path, package, SOURCE.format(n=1, name="same-sag"), f"{package} = {package}")
    with pytest.warns(
        RuntimeWarning, match=r"second_attacks are left out: .*'same-sag' is taken by first_attacks.Sag1"
    ):
        assert table["same-sag"].kind.__module__ == "first_attacks"


SCALAR = spaces.Box(-1, 1, (), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "at"),
    [(SCALAR, None), (spaces.Dict(a=SCALAR, b=spaces.Discrete(3)), "a")],
)
def test_an_observation_of_shape_nothing_is_attacked_or_refused(space, at):
    """Some presets flattened rows of it, which are numbers, and failed in torch."""
    agent, attacked = agent_for(space), set()
    for name in names("observation"):
        with contextlib.suppress(AdvWrappersError):
            env = adv.wrap(showing(space), parse_threat(name, eps=0.1, at=at), victim=agent)
            env.reset(seed=0)
            assert env.observation_space.contains(env.step(1)[0])
            attacked.add(name)
    few = "stuck-sensor:features=0"
    adv.wrap(showing(space), parse_threat(few, at=at)).reset(seed=0)
    assert {"noise", "pgd", "carlini-wagner", "hop-skip-jump", "max-diff", "square", "observation-delay"} <= attacked


def test_a_field_that_texts_give_to_the_timing_is_refused():
    @dataclass(frozen=True)
    class Fault(Perturbation):
        p: float = 0.1

    with pytest.raises(ThreatError, match="p of Fault: of a preset that is an argument of the budget or the timing"):
        Preset(Fault)


def test_a_search_is_named_where_a_preset_is_asked_for():
    with pytest.raises(ThreatError, match=r"unknown preset 'beam' .*beam_search"):
        parse_threat("beam:eps=0.1")
