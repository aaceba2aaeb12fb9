"""Every law has a mutant: the engine is broken on purpose, and the law's own check must raise AssertionError."""

from __future__ import annotations

import dataclasses
import functools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

import adv_wrappers as adv
from adv_wrappers.adversaries import Learned
from adv_wrappers.attacks.restarts import BestPoints
from adv_wrappers.core.arrays import clamp
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.budgets.frame_stack import FrameHistory
from adv_wrappers.core.engine.clock import Clock
from adv_wrappers.core.engine.context import Context, LayerState
from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import Bernoulli, Never
from adv_wrappers.threats import text
from adv_wrappers.victims.distributions import CategoricalFamily
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import EnvLayer, VectorLayer
from adv_wrappers.wrappers.sb3_vec_env import VecLayer
from tests.every_case import every_case
from tests.laws import checks
from tests.laws import test_law_11_mirror as mirror
from tests.laws.checks import Case, Remembering
from tests.rigs import RIGS


@pytest.fixture(autouse=True)
def no_earlier_runs():
    """Nothing that the real engine played stands in for what a mutant would, and the other way round."""
    checks._latest.clear()
    yield
    checks._latest.clear()


def case(preset, rig):
    return Case(preset, RIGS[rig])


def fails(check, *args):
    """The check passes on the real engine (asserted by the law tests) and raises on this one."""
    with pytest.raises(AssertionError):
        check(*args)


def far(x, context):
    return x + 1e4


@pytest.mark.parametrize("rig", ["q", "image"])
def test_law_1_a_forgotten_projection(monkeypatch, rig):
    monkeypatch.setattr(Linf, "project", lambda self, y, x, low, high, grid=False: y)
    monkeypatch.setattr(Budget, "project", lambda self, y, x, low, high, grid=False: y)
    fails(checks.check_budget, case("noise", rig), "linf", "env", far)


def test_law_1_a_forgotten_inward_rounding(monkeypatch):
    def box(self):
        low, high = self._applied.field.bounds(self.exact.device)
        return self.budget.box(self.exact, torch.minimum(low, self.exact), torch.maximum(high, self.exact))

    monkeypatch.setattr(Context, "exact_box", box)
    fails(checks.check_budget, case("fgsm", "image"), "linf")


def test_law_1_a_space_that_is_not_widened(monkeypatch):
    def widened(self, exact, dtype):
        return self.bounds(exact.device if isinstance(exact, torch.Tensor) else None, dtype)

    monkeypatch.setattr(Field, "widened", widened)
    fails(checks.check_budget, case("action-noise", "mean"), "linf")


def test_law_2_a_budget_of_zero_that_moves(monkeypatch):
    monkeypatch.setattr(Linf, "project", lambda self, y, x, low, high, grid=False: clamp(y, low, high))
    monkeypatch.setattr(Linf, "box", lambda self, x, low, high: (x - self.eps, x + self.eps))
    fails(checks.check_identity, case("noise", "q"), "env")  # -0.0 becomes 0.0


def test_law_2_unstruck_rows_make_the_float_round_trip(monkeypatch):
    real = Engine.apply

    def apply(self, value, attacked, final=False, mask=None):
        out = real(self, value, attacked, final, mask)
        keep = np.asarray(attacked).reshape(-1, *[1] * (np.ndim(out) - 1))
        return np.where(keep, out, np.asarray(value).astype(np.float32).astype(out.dtype))

    monkeypatch.setattr(Engine, "apply", apply)
    fails(checks.check_identity, case("noise", "mean"), "next")


def test_law_2_a_timing_that_is_ignored(monkeypatch):
    monkeypatch.setattr(Engine, "decide", lambda self, value, eligible=True, final=False: eligible)
    monkeypatch.setattr(Never, "decide", lambda self, step, path=0: True)
    fails(checks.check_identity, case("noise", "q"), "env")


@pytest.mark.parametrize("kind", ["env", "next"])
def test_law_3_a_global_torch_draw(monkeypatch, kind):
    monkeypatch.setattr(Context, "uniform", lambda self: torch.rand(self.x.shape).numpy().astype(self.dtype))
    fails(checks.check_seeds, case("noise", "q"), kind)


def test_law_3_a_global_numpy_draw(monkeypatch):
    monkeypatch.setattr(Context, "uniform", lambda self: np.random.rand(*self.x.shape).astype(self.dtype))
    fails(checks.check_seeds, case("noise", "q"), "same")


def test_law_3_a_key_of_the_row_index(monkeypatch):
    real = Context._next_key
    monkeypatch.setattr(Context, "_next_key", lambda self: real(self) + np.arange(len(self.x), dtype=np.uint64))
    fails(checks.check_seeds, case("noise", "q"), "next")


def test_law_3_a_key_that_forgets_the_step(monkeypatch):
    monkeypatch.setattr(Clock, "key", lambda self: self.root)
    fails(checks.check_fresh, case("noise", "q"))


def test_law_4_a_clock_that_stands_still(monkeypatch):
    real = Clock.tick
    monkeypatch.setattr(Clock, "tick", lambda self, moved=True: None if self.rows else real(self, moved))
    fails(checks.check_vector, case("noise", "q"), "next")


@pytest.mark.parametrize("kind", ["next", "same", "tensor"])
def test_law_4_an_autoreset_that_keeps_the_old_clock(monkeypatch, kind):
    monkeypatch.setattr(Clock, "next_episode", lambda self, mask: None)
    fails(checks.check_vector, case("noise", "q"), kind)


def test_law_4_final_observations_under_the_new_clock(monkeypatch):
    real = Engine.end_step

    def end_step(self, done, final=None):
        if final is not None:
            self.clock.next_episode(done)
        return real(self, done, final)

    monkeypatch.setattr(Engine, "end_step", end_step)
    fails(checks.check_vector, case("noise", "q"), "same")


def test_law_4_a_masked_reset_that_attacks_again(monkeypatch):
    from adv_wrappers.utils import trees

    monkeypatch.setattr(trees, "merge", lambda mask, new, old: new + 0.001)
    fails(checks.check_vector, case("noise", "q"), "disabled")


@pytest.mark.parametrize(("kind", "adapter"), [("same", VectorLayer), ("tensor", VectorLayer), ("sb3", VecLayer)])
def test_law_4_an_adapter_that_hands_out_true_last_observations(monkeypatch, kind, adapter):
    monkeypatch.setattr(adapter, "_with_last", lambda self, info, over, last: info)
    fails(checks.check_vector, case("noise", "q"), kind)


@pytest.mark.parametrize("kind", ["next", "disabled", "sb3"])
def test_law_4_an_adapter_whose_infos_lie(monkeypatch, kind):
    monkeypatch.setattr(VecLayer if kind == "sb3" else VectorLayer, "_rows", lambda self, attacked: [False] * 2)
    fails(checks.check_vector, case("noise", "q"), kind)


def test_law_5_an_output_of_another_dtype(monkeypatch):
    monkeypatch.setattr(Field, "give", lambda self, value, part, batched: np.asarray(part, np.float64))
    fails(checks.check_types, case("noise", "q"), "next")


def test_law_5_an_observation_outside_its_space(monkeypatch):
    real = Engine.observe
    monkeypatch.setattr(Engine, "observe", lambda self, obs, rows=None: real(self, obs, rows).astype(np.float64))
    fails(checks.check_environment_api, case("noise", "q"), RIGS["q"].victim())


def test_law_6_a_layer_that_draws_from_the_environment(monkeypatch):
    real = EnvLayer._receive

    def receive(self, *answer):
        self.env.unwrapped.np_random.random()
        return real(self, *answer)

    monkeypatch.setattr(EnvLayer, "_receive", receive)
    fails(checks.check_dynamics, case("noise", "q"), "env")


@pytest.mark.parametrize("fault", ["grad", "requires_grad", "eval", "weights"])
def test_law_7_a_victim_that_is_left_changed(monkeypatch, fault):
    real = Victim.gradient

    def gradient(self, loss, state=None, fill=None):
        module = self.modules()[0]
        weight = next(module.parameters())
        if fault == "grad":
            weight.grad = torch.ones_like(weight)
        elif fault == "requires_grad":
            weight.requires_grad_(False)
        elif fault == "eval":
            module.eval()
        else:
            weight.data.add_(1e-6)
        return real(self, loss, state, fill)

    checks.make_victim.cache_clear()
    monkeypatch.setattr(Victim, "gradient", gradient)
    try:
        fails(checks.check_victim, case("fgsm", "q"), "env")
    finally:
        checks.make_victim.cache_clear()


@pytest.mark.parametrize("preset", ["fgsm", "max-diff", "min-q"])
def test_law_8_a_descent_for_an_ascent(monkeypatch, preset):
    real = Victim.gradient

    def gradient(self, loss, state=None, fill=None):
        up = real(self, loss, state, fill)
        return lambda x: -up(x)

    monkeypatch.setattr(Victim, "gradient", gradient)
    fails(checks.check_strength, case(preset, "q"))


@every_case("field", ["within", "when"])
def test_law_9_a_dictionary_that_loses_a_field(monkeypatch, field):
    real = ThreatModel.to_dict

    def to_dict(self):
        data = real(self)
        if field == "within":
            data["within"] = {"type": "linf", "eps": 9.0}
        else:
            data.pop("when", None)
        return data

    monkeypatch.setattr(ThreatModel, "to_dict", to_dict)
    with pytest.raises(AssertionError):
        checks.check_round_trip(case("noise", "q"), when=Bernoulli(0.5))


@pytest.mark.parametrize("fault", ["digits", "arguments", "timing", "quotes"])
def test_law_9_a_text_that_loses_something(monkeypatch, fault):

    if fault == "digits":
        monkeypatch.setattr(text, "_number_text", lambda value: f"{value:g}")
    elif fault == "arguments":
        monkeypatch.setattr(text, "_not_in_preset", lambda how, preset, names: [])
    elif fault == "timing":
        monkeypatch.setattr(text, "_timing_text", lambda when, victim, open_too: "every(3)")
    else:
        monkeypatch.setattr(text, "_string_text", lambda value, read: value)
    fails(checks.check_text, Case("noise", _odd_keys()) if fault == "quotes" else case("max-diff", "dict"))


def _odd_keys():
    """The rig of a Dict whose key needs quotes in a text."""
    rig = RIGS["dict"]
    return dataclasses.replace(rig, space=gym.spaces.Dict({"a;b": rig.space["vector"], **rig.space.spaces}), at="a;b")


def test_law_9_holds_for_keys_that_need_quotes():
    checks.check_text(Case("noise", _odd_keys()))


@pytest.mark.parametrize("kind", ["env", "same"])
def test_law_10_a_wrap_that_reverses_the_order(monkeypatch, kind):
    real = adv.wrap
    monkeypatch.setattr(adv, "wrap", lambda env, *threats, **options: real(env, *reversed(threats), **options))
    fails(checks.check_composition, case("fgsm", "q"), kind)


@pytest.mark.parametrize("fault", ["last", "worst", "mixed"])
def test_law_12_a_search_that_keeps_another_point(monkeypatch, fault):
    offer = BestPoints.offer

    def wrong(self, y, params=None, end=False):
        if fault == "last" or self.point is None:
            self.point = None
            return offer(self, y, params)
        if fault == "worst":
            better, self.objective = self.objective, lambda params: -better(params)
            self.success = None
            try:
                return offer(self, y, params)
            finally:
                self.objective = better
        value = offer(self, y, params)
        self.point = self.point.roll(1, 0)  # each row gets its neighbour's
        return value

    monkeypatch.setattr(BestPoints, "offer", wrong)
    fails(checks.check_never_weaker, case("min-best", "q"))


# the past under Newest


@pytest.mark.parametrize("fault", ["forgotten", "perturbed again"])
def test_law_1_a_past_that_changes(monkeypatch, fault):
    real = FrameHistory.recall

    def recall(self, stack):
        shown, new = real(self, stack)
        return (stack if fault == "forgotten" else shown), torch.ones_like(new)

    monkeypatch.setattr(FrameHistory, "recall", recall)
    fails(checks.check_budget, case("noise", "image"), "newest")


@pytest.mark.parametrize("kind", ["next", "tensor"])
def test_law_4_a_past_of_another_row(monkeypatch, kind):
    real = FrameHistory.remember
    monkeypatch.setattr(
        FrameHistory, "remember", lambda self, true, shown, rows=True: real(self, true, shown.roll(1, 0), rows)
    )
    fails(checks.check_vector, case("noise", "image"), kind, None, "newest")


# learned adversaries and hybrids


@pytest.mark.parametrize("fault", ["episode", "row"])
def test_law_4_a_director_with_the_memory_of_another(monkeypatch, fault):
    if fault == "episode":
        begin = Engine._begin_memory
        monkeypatch.setattr(Engine, "_begin_memory", lambda self, mask=None: begin(self) if mask is None else None)
    else:
        real = LayerState.remember
        monkeypatch.setattr(
            LayerState,
            "remember",
            lambda self, new, rows: real(self, {name: leaf.roll(1, 0) for name, leaf in new.items()}, rows),
        )
    fails(checks.check_vector, Remembering("learned", RIGS["mean"]), "next")


def _perturbed(monkeypatch, change):
    """A deployed adversary that gets ``change`` of what it should see, a part of a hybrid as well."""
    real = Learned.__call__
    monkeypatch.setattr(Learned, "__call__", lambda self, x, context: real(self, *change(self, x, context)))


def test_law_3_a_director_that_draws(monkeypatch):
    _perturbed(monkeypatch, lambda self, x, context: (x + torch.randn_like(x), context))
    fails(checks.check_seeds, case("learned", "mean"), "next")


@pytest.mark.parametrize("fault", ["card", "victim"])
def test_law_9_an_adversary_whose_dictionary_names_another(monkeypatch, fault):
    real = Learned.to_dict

    def to_dict(self):
        data = real(self)
        if fault == "card":
            return data | {"card": checks.adversary_of("mean", recurrent=True), "sha256": None}
        data.pop("victim")
        return data

    monkeypatch.setattr(Learned, "to_dict", to_dict)
    fails(checks.check_round_trip, case("learned", "mean"))


@pytest.mark.parametrize("played", ["single", "vector"])
@pytest.mark.parametrize("fault", ["sight", "timing", "reward"])
def test_law_11_an_adversary_that_is_not_the_one_that_trained(monkeypatch, fault, played):
    if fault == "sight":
        _perturbed(monkeypatch, lambda self, x, context: (x - 0.3, context))
    elif fault == "timing":
        monkeypatch.setattr(mirror, "deploy", functools.partial(mirror.deploy, when=None))
    else:
        monkeypatch.setattr(mirror, "AdversaryEnv", functools.partial(mirror.AdversaryEnv, reward=_praised))
    _mirrored(played, "sa-rl")


def _praised(reward, **received):
    return reward


def _mirrored(played, name):
    """Law 11 fails for an agent that draws its actions."""
    if played == "single":
        fails(mirror.test_single, "logits", name)
    else:
        fails(mirror.test_vector, ("logits", name), AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("played", ["single", "vector"])
@pytest.mark.parametrize("part", ["observation", "action"])
def test_law_11_a_hybrid_of_which_a_part_does_nothing(monkeypatch, part, played):
    real = Learned.__call__
    monkeypatch.setattr(
        Learned, "__call__", lambda self, x, context: x if self.part == part else real(self, x, context)
    )
    _mirrored(played, "hybrid")


def test_law_11_a_hybrid_whose_parts_choose_apart(monkeypatch):
    def change(self, x, context):
        if self.part == "action":
            context.observation = -context.observation
        return x, context

    _perturbed(monkeypatch, change)
    _mirrored("single", "hybrid")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_law_14_answers_that_nobody_looks_at(monkeypatch, value):
    monkeypatch.setattr(Victim, "check_params", lambda self, params, rows=None, look=True: None)
    fails(checks.check_answers, case("fgsm", "q"), value)
    fails(checks.check_runner, RIGS["q"], value)


def test_law_14_a_mask_that_excuses_everything(monkeypatch):
    monkeypatch.setattr(CategoricalFamily, "possible", lambda self, params, masks=False: ~params.isnan().any(-1))
    fails(checks.check_answers, case("fgsm", "logits"), float("inf"))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(fault, kind) for fault in ("asked in vain", "everything is declined") for kind in ("env", "same", "sb3")]
    + [("counted all the same", kind) for kind in ("same", "sb3")],  # a single one that declines counts nothing
)
def test_law_15_an_adversary_whose_choice_does_not_hold(monkeypatch, fault, kind):
    if fault == "asked in vain":
        monkeypatch.setattr(Engine, "_accepted", lambda engine, value, attacked, final, mask: attacked)
    elif fault == "everything is declined":
        monkeypatch.setattr(Engine, "_accepted", lambda engine, value, attacked, final, mask: False)
    else:
        monkeypatch.setattr(Clock, "count", lambda self, attacked: setattr(self, "spent", self.spent + 1))
    fails(checks.check_declined, case("noise", "q"), kind)


def test_law_15_a_choice_that_is_made_of_the_perturbed_values(monkeypatch):
    real = Learned.accepts
    monkeypatch.setattr(Learned, "accepts", lambda self, x, context: real(self, x + 0.1237, context))
    fails(checks.check_declined, case("noise", "q"), "env")
