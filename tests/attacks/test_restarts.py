"""Restarts, the best point of every row, and where restarts begin."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

from adv_wrappers import APGD, MaxDiff, MaxWorst, MinBest, MinQ, MinValue, Momentum, MultiTargeted, ThreatModel
from adv_wrappers.attacks.objectives import CrossEntropy, Divergence, Margin
from adv_wrappers.attacks.restarts import BestPoints, RestartPoints
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.networks.policy_layers import AppendLogStd
from adv_wrappers.threats.presets import presets, threat
from tests.core.helpers import actor, box, chooser, context, linear, mlp, randn
from tests.every_case import every_case

X = randn(64, 4, seed=2)


def rugged(outputs: int, seed: int = 0, inputs: int = 4) -> nn.Sequential:
    """A network with many bends, on which one ascent seldom finds the best point."""
    net = mlp(inputs, outputs, seed)
    with torch.no_grad():
        net[0].weight.mul_(4)
    return net


GAUSSIAN = nn.Sequential(rugged(3), AppendLogStd(torch.tensor([-0.5, 0.0, 0.5]).double()))
VICTIMS = {
    "q": chooser(rugged(3), "q"), "logits": chooser(rugged(3)), "sampled": chooser(rugged(3), select="sample"),
    "mean": actor(rugged(3)), "gaussian": actor(GAUSSIAN, "gaussian"),
}  # fmt: skip
ATTACKS = {
    "min-best": MinBest(steps=4, step=0.4, loss="margin"),
    "max-diff": MaxDiff(steps=4, step=0.4),
    "multi-targeted": MultiTargeted(steps=4, step=0.4, restarts=1, schedule="constant"),
    "apgd": APGD(steps=6, restarts=1),
}


def against(name, kind, **more):
    return replace(ATTACKS[name], victim=VICTIMS[kind], **more)


def rank(attack, y, budget=None):
    """What ``keep="best"`` compares: success and objective, ``[B]`` each."""
    bound = context(X, budget or Linf(0.5)).bind(attack.victim)
    objective = attack.objective(X, bound)
    params = attack.victim.params(y)
    success = getattr(objective, "success", None) if attack.victim.select == "mode" else None
    return (torch.zeros(len(y), dtype=y.dtype) if success is None else success(params)), objective(params)


@pytest.mark.parametrize("kind", ["q", "logits"])
def test_pgd_is_in_no_row_weaker_than_fgsm(kind):
    fgsm, pgd = (threat(name, VICTIMS[kind], eps=0.5).how for name in ("fgsm", "pgd"))
    label = VICTIMS[kind].params(X).argmax(-1)
    one, search = (VICTIMS[kind].params(how(X, context(X, Linf(0.5)))).argmax(-1) != label for how in (fgsm, pgd))
    assert (search | ~one).all() and search.sum() > one.sum()


def test_a_search_climbs_the_cross_entropy_once_and_then_the_margin():
    bound = context(X, Linf(0.5)).bind(VICTIMS["logits"])
    search = MinBest(VICTIMS["logits"], restarts=3, keep="best")
    objective = search.objective(X, bound)
    kinds = [type(loss) for loss in search.losses(X, bound, objective)]
    assert type(objective) is Margin and kinds == [CrossEntropy, Margin, Margin]
    for how in (MinBest(VICTIMS["logits"]), replace(search, loss="cross-entropy")):
        losses = how.losses(X, bound, how.objective(X, bound))
        assert {type(loss) for loss in losses} == {CrossEntropy}, "as published, or as asked for"


def test_published_attacks_are_one_ascent_and_its_last_point():
    """What papers compare with is not changed by what is stronger."""
    for name in ("min-best", "fgsm", "max-worst", "momentum", "min-q", "min-value", "max-diff", "robust-sarsa"):
        kind = presets[name].kind
        made = kind(**presets[name].arguments)
        assert (made.restarts, made.keep, made.schedule) == (1, "last", "constant")


def test_keeping_the_last_point_of_several_ascents_takes_the_best_of_these():
    attack = against("min-best", "q", restarts=3)
    made = context(X, Linf(0.5))
    starts = RestartPoints(made)
    ends = [
        attack.run_once(made, made.bind(attack.victim).gradient(attack.objective(X, made.bind(attack.victim))), s)
        for s in (None, starts(1), starts(2))
    ]
    values = torch.stack([rank(attack, y)[1] for y in ends])
    torch.testing.assert_close(rank(attack, attack(X, context(X, Linf(0.5))))[1], values.amax(0))


def test_a_flip_counts_before_the_objective():
    """With three actions a point may be better for the cross-entropy and still be no flip."""
    clean = torch.tensor([[2.0, 0.0, 0.0]]).double()
    flipped = torch.tensor([[1.0, 1.1, -9.0]]).double()
    mixed = torch.tensor([[1.0, 0.99, 0.99]]).double()
    objective = CrossEntropy(clean.argmax(-1))
    assert objective(mixed) > objective(flipped)
    for select, kept in (("mode", flipped), ("sample", mixed)):
        victim = chooser(mlp(4, 3), select=select)
        best = BestPoints(objective, victim, lambda y: y)
        for params in (clean, flipped, mixed, clean):
            best.offer(params, params)
        assert torch.equal(best.result(), kept)


def test_rows_keep_their_own_best():
    best = BestPoints(Margin(torch.zeros(2, dtype=torch.int64)), VICTIMS["q"], lambda y: y)
    best.offer(torch.tensor([[0.0, 1.0], [0.0, 5.0]]))
    best.offer(torch.tensor([[0.0, 2.0], [0.0, 4.0]]))
    assert torch.equal(best.result(), torch.tensor([[0.0, 2.0], [0.0, 5.0]]))


@every_case("shape", [(1,), (2,), (3,), (2, 3), (17,)])
def test_starts_are_opposite_corners_and_then_random_points(shape):
    x = randn(5, *shape)
    starts = RestartPoints(context(x, Linf(0.5), -1.0, 1.0))
    assert starts(0) is None
    size = x[0].numel()
    made = context(x, Linf(0.5), -1.0, 1.0)
    corners = [starts(i) for i in range(1, 2 * size + 1)]
    for corner in corners:
        assert ((corner == made.low) | (corner == made.high)).all()
    for up, down in zip(corners[::2], corners[1::2], strict=True):
        assert torch.equal((up == made.high) & (made.low < made.high), (down == made.low) & (made.low < made.high))
    after = starts(2 * size + 1)
    assert ((after > made.low) & (after < made.high)).any() and not torch.equal(after, starts(2 * size + 2))


def test_four_starts_in_two_dimensions_are_the_four_corners():
    starts = RestartPoints(context(torch.zeros(6, 2).double(), Linf(1.0)))
    corners = torch.stack([starts(i) for i in range(1, 5)])
    for row in range(6):
        assert {tuple(c) for c in corners[:, row].tolist()} == set(itertools.product((-1.0, 1.0), repeat=2))


def test_on_a_grid_every_start_and_the_best_point_are_points_of_it():
    x = torch.randint(0, 256, (16, 4), generator=torch.Generator().manual_seed(0)).double()
    net = nn.Sequential(linear(torch.eye(4).double() / 60), *rugged(3))
    victim = chooser(net, "q")
    made = context(x, Linf(2.0), 0, 255, grid=True)
    y = MinBest(victim, 5, 0.5, restarts=5, keep="best")(x, made)
    assert torch.equal(y, y.round()) and (y - x).abs().max() <= 2 and (y >= 0).all() and (y <= 255).all()


AGAIN = {"restarts": 2, "keep": "best"}


class Overflowing(nn.Module):
    """Finite answers, and a slope that is none."""

    def forward(self, x):
        return torch.stack([x.sum(-1), -x.sum(-1), (x[:, 0] - x[:, 0].detach()).abs().sqrt()], -1)


@pytest.mark.parametrize(
    ("attack", "more"),
    [(MinBest(steps=1), {}), (MinBest(steps=3, step=0.5), AGAIN), (Momentum(), {}), (MaxDiff(), AGAIN), (APGD(), {})],
)
def test_a_slope_that_is_not_finite_is_an_error(attack, more):
    """The sign of NaN is zero: the attack would stay where it is, and look like a victim that withstands it."""
    how = replace(attack, victim=chooser(Overflowing(), "q", dtype=torch.float64), **more)
    engine = Engine(ThreatModel("observation", how, Linf(0.1)), Wrapped(box(4), how.victim.action_space, 4))
    with pytest.raises(ThreatError, match="not finite"):
        engine.apply(randn(4, 4).numpy(), True)


def test_large_gaps_between_q_values_blind_nobody():
    """A softmax over Q-values a thousand times as far apart has no gradient in float32."""
    net = mlp(4, 2).float()
    with torch.no_grad():
        net[2].weight.mul_(2000)
        net[2].bias.mul_(2000)
    victim = chooser(net, "q", actions=2, dtype=torch.float32)
    x = X.float()
    q = victim.params(x)
    assert (q.diff(dim=-1).abs() > 104).float().mean() > 0.8

    def flips(how):
        y = how(x, context(x, Linf(0.6)))
        return (victim.params(y).argmax(-1) != q.argmax(-1)).float().mean()

    plain = flips(MinBest(victim, 10, 0.25))
    assert plain > 0.5
    for how in (MinQ(victim, 10, 0.25), MinQ(victim, 10, 0.25, loss="margin")):
        assert flips(how) > 0.9 * plain
    # a divergence rises in both directions, of which one ends where the victim is but surer of itself
    assert flips(MaxDiff(victim, 10, 0.25, restarts=6, keep="best", noise=0.0)) > 0.9 * plain
    cold = flips(MaxDiff(victim, 10, 0.25, restarts=6, keep="best", noise=0.0, temperature=1.0))
    assert cold < 0.9 * plain
    assert flips(MinQ(victim, 10, 0.25, temperature=1.0)) < 0.5 * plain, "as the paper has it"


def test_small_gaps_are_as_published():
    from adv_wrappers.attacks.objectives import ExpectedQ

    victim = chooser(mlp(4, 3), "q")
    q = victim.params(X / 8)
    bound = context(X, Linf(0.5)).bind(victim)
    assert (q.amax(-1) - q.amin(-1)).max() < 10
    there = victim.params(X + 0.1)
    assert torch.equal(MinQ(victim).objective(X / 8, bound).gradient(there), ExpectedQ(q).gradient(there))
    assert torch.equal(MaxDiff(victim).objective(X / 8, bound).gradient(there), Divergence(victim, q).gradient(there))


def test_weights_of_max_diff():
    """One dimension of action moves twice as far as the other, whose deviation is four times as small."""
    weight = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double()
    log_std = torch.tensor([4.0, 1.0]).double().log()
    net = nn.Sequential(linear(weight), AppendLogStd(log_std))
    x = torch.zeros(4, 2).double()
    moved = {}
    for weights in ("one", "std"):
        victim = actor(net, "gaussian", size=2, actions=2)
        how = MaxDiff(victim, weights=weights)
        params = victim.params(torch.tensor([[1.0, 1.0]]).double())
        moved[weights] = how.objective(x[:1], context(x[:1], Linf(1.0)).bind(victim)).gradient(params)[0, :2]
    torch.testing.assert_close(moved["one"], torch.tensor([4.0, 2.0]).double())
    mean = log_std.exp().mean()
    torch.testing.assert_close(moved["std"], 2 * mean**2 * torch.tensor([2.0 / 16, 1.0 / 1]).double())
    for select, weights in (("mode", "one"), ("sample", "std")):
        victim = actor(net, "gaussian", size=2, actions=2, select=select)
        bound = context(x[:1], Linf(1.0)).bind(victim)
        default = MaxDiff(victim).objective(x[:1], bound).gradient(victim.params(x[:1] + 1))
        assert torch.equal(
            default, MaxDiff(victim, weights=weights).objective(x[:1], bound).gradient(victim.params(x[:1] + 1))
        )


def test_the_played_action_of_the_lowest_q():
    """Of two actions that are in reach the worse one is taken, though the other one is nearer."""
    # at 0 action 0 is best; to the right action 1 soon leads, to the left, later, action 2
    net = linear(torch.tensor([[0.0], [1.0], [-1.0]]).double(), torch.tensor([0.0, -0.2, -0.5]).double())
    victim = chooser(net, "q", size=1)
    x = torch.zeros(3, 1).double()
    near = MultiTargeted(victim)(x, context(x, Linf(0.6)))
    worst = MultiTargeted(victim, by="q")(x, context(x, Linf(0.6)))
    assert (victim.params(near).argmax(-1) == 1).all() and (victim.params(worst).argmax(-1) == 2).all()


def test_every_target_is_tried_up_to_a_number():
    victim = chooser(mlp(4, 6), "q", actions=6)
    bound = context(X, Linf(0.5)).bind(victim)
    for targets, by in ((3, "margin"), (9, "margin"), (2, "q")):
        how = MultiTargeted(victim, by=by, targets=targets, restarts=2)
        aims = how.losses(X, bound, how.objective(X, bound))
        assert len(aims) == 2 * min(targets, 5)
        q = victim.params(X)
        own = q.argmax(-1)
        goals = torch.stack([aim.target for aim in aims[: min(targets, 5)]], 1)
        assert (goals != own[:, None]).all() and all(len(set(row)) == min(targets, 5) for row in goals.tolist())
        ranks = q.gather(1, goals)
        assert (ranks.diff(dim=1) <= 0).all() if by == "margin" else (ranks.diff(dim=1) >= 0).all()


def test_min_value_climbs_down_the_critic():
    weight = randn(1, 4, seed=5)
    value = linear(weight)
    for victim in (actor(mlp(4, 3), value=value), chooser(mlp(4, 3), value=value)):
        y = MinValue(victim)(X, context(X, Linf(0.3)))
        torch.testing.assert_close(y, X - 0.3 * weight.sign().expand_as(X))
    with pytest.raises(VictimError, match="state value"):
        MinValue(actor(mlp(4, 3)))
    with pytest.raises(VictimError, match="min-value"):
        MinQ(actor(mlp(4, 3), value=value))


@every_case("kind", [MaxDiff, MaxWorst, Momentum, MinQ, MinValue])
def test_steps_that_nobody_gave_are_as_published_or_fit_the_search(kind):
    """Ten steps of a tenth never leave the half of the box in which a restart begins."""
    assert kind().lengths == (0.1, "constant") and kind(restarts=4).lengths == (0.1, "constant")
    assert kind(restarts=4, keep="best").lengths == (0.5, "linear")
    assert kind(step=0.2, keep="best").lengths == (0.2, "constant")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "logits"])
def test_the_strong_form_of_max_diff_finds_what_a_long_search_finds(kind):
    strong, long = (
        MaxDiff(VICTIMS[kind], steps=steps, restarts=restarts, keep="best", noise=0.0)
        for steps, restarts in ((10, 6), (100, 40))
    )
    reached, best = (rank(how, how(X, context(X, Linf(0.5))))[1] for how in (strong, long))
    plain = rank(strong, MaxDiff(VICTIMS[kind])(X, context(X, Linf(0.5))))[1]
    assert reached.sum() > 0.93 * best.sum() and plain.sum() < 0.9 * best.sum()
