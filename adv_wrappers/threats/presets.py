"""Presets: threats by name, and the text form ``name:key=value,...`` that the command line and registered ids take.

A preset is a perturbation with numbers filled in. Every perturbation of :mod:`adv_wrappers.threats.all_attacks` and
:mod:`adv_wrappers.daylight` has one under its own name, and one for each of its ``variants``: ``fgsm`` and ``pgd``
are MinBest with the numbers those names stand for. Packages that are installed add theirs by the entry point group
``adv_wrappers.presets`` (:class:`PresetTable`).
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import ModuleType
from typing import Any

from adv_wrappers import daylight
from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.hybrid_attack import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.adversaries.timed import Timed
from adv_wrappers.core.budgets.budget import Budget, OfFrames, Valid, budget_of
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.budgets.plausible_transitions import Plausible
from adv_wrappers.core.budgets.temporal_coupling import Coupled
from adv_wrappers.core.perturbation import (
    ActionPerturbation,
    DynamicsPerturbation,
    How,
    On,
    Perturbation,
    RewardPerturbation,
    When,
    check_how,
    expect_victim,
)
from adv_wrappers.core.serialization import Value, construct, decode
from adv_wrappers.core.spaces import At
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import And, Bernoulli, Not, Or, Pair, Strategic, Timing
from adv_wrappers.errors import BudgetError, ThreatError, threat_in_errors
from adv_wrappers.registry import after_load, load_entry_points, package_of, warn_left_out
from adv_wrappers.threats import all_attacks
from adv_wrappers.utils.checks import check_names
from adv_wrappers.utils.parsing import parse_value, split_arguments, unquote
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.auxiliary_networks import Dynamics, load_dynamics
from adv_wrappers.victims.references import load_referenced

# ----------------------------------------------------------------------------------------------------------------------
# The text forms of timings, budgets and a preset's arguments. Texts are read, never evaluated.
# ----------------------------------------------------------------------------------------------------------------------


def _timings() -> dict[str, type[Timing]]:
    """The timings that a text may name, those of users included."""
    kinds: dict[str, type[Value]] = {Strategic.name: Strategic, **Value.kinds}
    return {n: k for n, k in kinds.items() if issubclass(k, Timing) and not issubclass(k, (Pair, Not))}


def parse_when(text: str) -> When:
    """The timing that a text describes: ``every(4)``, ``bernoulli(0.1) & ~window(0, 10)``, ``strategic(0.3)``.

    Raises:
        ThreatError: for text that is not a combination of known timings with numbers in them. Nothing is evaluated.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ThreatError(f"cannot read the timing {text!r}: expected something like 'bernoulli(0.1)'") from error
    return _build(tree, text)


def _build(node: ast.expr, text: str) -> When:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        pair = And if isinstance(node.op, ast.BitAnd) else Or
        return pair(_build(node.left, text), _build(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return Not(_build(node.operand, text))
    # a timing by its name, with or without arguments
    call = node if isinstance(node, ast.Call) else ast.Call(func=node, args=[], keywords=[])
    if isinstance(call.func, ast.Name):
        kind = _timings().get(call.func.id.lower())
        if kind is not None:
            # arguments by their place, then by their name
            names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
            if len(call.args) > len(names):
                takes = ", ".join(names) or "nothing"
                raise ThreatError(f"{kind.name} takes {takes}, got {len(call.args)} arguments in {text!r}")
            given = {name: _literal(arg, text) for name, arg in zip(names, call.args, strict=False)}
            for keyword in call.keywords:
                if keyword.arg in given:
                    raise ThreatError(f"{keyword.arg} is given twice in {text!r}")
                given[str(keyword.arg)] = _literal(keyword.value, text)
            return construct(kind, **given)
    known = ", ".join(sorted(_timings()))
    raise ThreatError(f"cannot read the timing {text!r}: known are {known}, combined with &, | and ~")


def _literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError) as error:
        raise ThreatError(f"cannot read the timing {text!r}: arguments must be numbers") from error


def parse_budget(name: str, how: object, eps: float | None, norm: str | None, scale: Any) -> Budget:
    """The budget of ``eps``, ``norm`` and ``scale`` (:func:`.budget_of`); the perturbation's own where none is given.

    Raises:
        BudgetError: for arguments that do not go together, and where a budget is needed and none is given.
    """
    if eps is not None or norm == "valid":
        return budget_of(eps, norm, scale)
    own: Budget | None = getattr(how, "within", None)
    if own is not None and norm is None and scale is None:
        return own
    hint = " (how far a corner moves is distance=)" if hasattr(how, "distance") else ""
    raise BudgetError(
        f"{name} needs a budget: eps=..., with norm=linf (default), l2, l0 or sparse(2); or norm=valid{hint}"
    )


BUDGET_ARGUMENTS = ("eps", "norm", "scale", "newest", "change", "plausible", "model")  # of every preset
_BESIDE = (*BUDGET_ARGUMENTS, "p", "at")  # which no field of a perturbation may be called


@dataclass(frozen=True)
class Preset:
    """A perturbation class and the arguments that make the preset.

    Raises:
        ThreatError: for a class with a field that texts give to the budget or the timing.
    """

    kind: type[Perturbation]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""  # the difference from other presets of the same class

    def __post_init__(self) -> None:
        own = [each.name for each in fields(self.kind) if each.init and each.name in _BESIDE]  # type: ignore[arg-type]
        if own:
            raise ThreatError(
                f"{', '.join(own)} of {self.kind.__name__}: of a preset that is an argument of the budget or the "
                f"timing, as {', '.join(_BESIDE)} are: give the field another name"
            )

    @property
    def on(self) -> On:
        """What it perturbs."""
        bases: tuple[tuple[type[Perturbation], On], ...] = (
            (ActionPerturbation, "action"),
            (DynamicsPerturbation, "dynamics"),
            (RewardPerturbation, "reward"),
        )
        return next((on for base, on in bases if issubclass(self.kind, base)), "observation")

    @property
    def summary(self) -> str:
        """First line of the perturbation's docstring."""
        return " ".join([(self.kind.__doc__ or "").strip().splitlines()[0], self.words]).strip()


def presets_of(kinds: Iterable[type[Perturbation]]) -> dict[str, Preset]:
    """The presets of some classes: each under its own name, followed by its variants.

    Raises:
        ThreatError: for a name that stands for two presets.
    """
    found: dict[str, Preset] = {}
    for kind in kinds:
        variants = vars(kind).get("variants", {}).items()  # its own: a subclass is not called by those above it
        own = {kind.name: Preset(kind)} | {name: Preset(kind, *preset) for name, preset in variants}
        for name, preset in own.items():
            if name in found:
                raise ThreatError(f"{name} is the name of two presets: {found[name].kind.__name__}, {kind.__name__}")
            found[name] = preset
    return found


def _classes(module: ModuleType) -> list[type[Perturbation]]:
    """The perturbations that a module lists."""
    return [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Perturbation)]


class PresetTable(MutableMapping[str, Preset]):
    """Presets by name: those of this package, and those of installed packages.

    The others are entry points of the group ``adv_wrappers.presets``: each a perturbation class, a list of them, or a
    module, of which those that it defines itself count. They are imported when the table is first listed or asked for a
    name that it does not know, and not before. A package whose entry point cannot be imported, or is none of these, is
    left out with a warning, and so is a name that is taken.

    Args:
        own: the presets of this package.
        after_load: called with all names when those of installed packages have been imported.
    """

    def __init__(self, own: Mapping[str, Preset], after_load: Sequence[Callable[[Iterable[str]], None]] = ()) -> None:
        self._known = dict(own)
        self._package = dict.fromkeys(own, "adv_wrappers")
        self._loaded, self._after_load = False, after_load

    def load(self) -> None:
        """Import what installed packages add; done once.

        Warns:
            RuntimeWarning: for a package whose presets cannot be imported, and for a name that is taken.
        """
        if self._loaded:
            return
        self._loaded = True  # a package may read the table while it is imported
        for entry_point, listed in load_entry_points():
            package = package_of(entry_point)
            try:
                found = presets_of(_listed_by(listed))
            except ThreatError as error:
                warn_left_out(entry_point, error)
                continue
            # whoever has a name first keeps it
            for name, preset in found.items():
                if name in self._known and self._known[name].kind is not preset.kind:
                    other = f"{self._known[name].kind.__qualname__} of {self._package.get(name, 'this process')}"
                    message = f"the preset {name} of {package} is left out: {other} has this name"
                    warnings.warn(message, RuntimeWarning, stacklevel=2)
                else:
                    self._known[name], self._package[name] = preset, package
        for call in self._after_load:
            call([*self._known])

    def __getitem__(self, name: str) -> Preset:
        if name not in self._known:
            self.load()
        return self._known[name]

    def __setitem__(self, name: str, preset: Preset) -> None:
        self._known[name] = preset

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        self.load()
        return iter(self._known)

    def __len__(self) -> int:
        self.load()
        return len(self._known)


def _listed_by(found: object) -> list[type[Perturbation]]:
    """The classes of an entry point; :class:`ThreatError` for anything but perturbations."""
    if isinstance(found, ModuleType):
        own = f"{found.__name__}."
        items: list[object] = [kind for kind in _classes(found) if f"{kind.__module__}.".startswith(own)]
    else:
        items = [*found] if isinstance(found, (list, tuple)) else [found]
    kinds = [kind for kind in items if isinstance(kind, type) and issubclass(kind, Perturbation)]
    if not kinds or len(kinds) < len(items):
        raise ThreatError(f"expected a class of Perturbation, a list of them or a module with some, got {found!r:.80}")
    return [kind for kind in kinds if hasattr(kind, "name")]  # a base of others needs none


presets = PresetTable(presets_of([*_classes(all_attacks), *_classes(daylight)]), after_load)

TEXTS = ("when", "victim", "card", "critic", "dynamics", "model")  # values that are never numbers
_COMMON = (*_BESIDE, "victim", "when")


def threat(
    name: str,
    /,
    victim: Victim | str | None = None,
    *,
    eps: float | None = None,
    norm: str | None = None,
    scale: Any = None,
    newest: bool | None = None,
    change: float | None = None,
    plausible: float | None = None,
    model: Dynamics | str | None = None,
    when: When | str | None = None,
    p: float | None = None,
    at: At = None,
    within: Budget | None = None,
    **arguments: Any,
) -> ThreatModel:
    """The threat that a preset's name stands for.

    Args:
        name: one of ``presets``.
        victim: a victim or its reference; without one the threat stays open until ``against(victim)``.
        eps, norm, scale: the budget: ``norm`` is ``linf`` (default), ``l2``, ``l0`` (eps elements),
            ``sparse(2)`` (two elements, each within eps times its scale) or ``valid``.
        newest: True spends the budget on the newest frame of a stack alone (:class:`adv_wrappers.Newest`).
        change: how far a perturbation may move from one step to the next (:class:`adv_wrappers.Coupled`).
        plausible, model: how far what is shown may be from what a model of the dynamics predicts, and the model or
            ``card:FOLDER`` (:class:`adv_wrappers.Plausible`).
        when, p: the timing, as a value or a text; ``p`` is short for, and combines with, ``Bernoulli(p)``.
        at: key or keys of a Dict space, or of a Tuple the index.
        within: the budget itself, instead of eps, norm and scale.
        **arguments: the perturbation's own.

    Raises:
        ThreatError: for an unknown name or argument.
        BudgetError: where a budget is needed and none is given.
    """
    if not isinstance(name, str):
        raise ThreatError(
            f"expected the name of a preset, got {name!r:.80}: a perturbation is made a threat by ThreatModel"
        )
    preset = presets.get(name)
    if preset is None and (before := name.partition(":")[0]) in presets:
        raise ThreatError(
            f"expected the name of a preset, got the text {name!r:.80}, as wrap and evaluate take it: "
            f"adv_wrappers.threat({before!r}, eps=...), or adv_wrappers.threats.presets.parse_threat(text)"
        )
    if preset is None:
        raise ThreatError(f"unknown preset {name!r:.80}{_hint(name)}; known: {', '.join(sorted(presets))}")
    with threat_in_errors(name):
        victim = load_victim(victim) if isinstance(victim, str) else victim
        expect_victim(name, victim)
        # the perturbation: the preset's arguments and the given ones
        takes = {f.name for f in dataclasses.fields(preset.kind) if f.init}  # type: ignore[arg-type]
        given = {"victim": victim} if "victim" in takes and victim is not None else {}
        own = {**preset.arguments, **arguments, **given}
        check_names(name, own, {*_COMMON, *takes})
        if newest not in (None, True, False):
            raise BudgetError(
                f"newest must be true or false, got {newest!r}; within=Newest(..., axis=...) has the rest"
            )
        how = construct(preset.kind, **own)
        # the budget, from the ball outwards: coupled steps, plausible transitions, the newest frame
        budget = within if within is not None else parse_budget(name, how, eps, norm, scale)
        budget = budget if change is None else Coupled(budget, change)  # type: ignore[arg-type]  # it checks
        if (plausible is None) != (model is None):
            raise BudgetError("plausible=DISTANCE and model=card:FOLDER go together, and one of them is missing")
        if plausible is not None and model is not None:
            budget = Plausible(budget, load_dynamics(model), plausible)  # type: ignore[arg-type]  # it checks
        budget = Newest(budget) if newest else budget
        # the timing, with a coin in front of it where p is given
        timing = parse_when(when) if isinstance(when, str) else when
        if p is not None:
            timing = Bernoulli(p) if timing is None else And(Bernoulli(p), timing)
        made = ThreatModel(how.on, how, budget, timing, at)
        return made.against(victim) if victim is not None else made


def _hint(name: str) -> str:
    kind = Value.kinds.get(name.partition(":")[0])
    if kind is not None and issubclass(kind, Actor):
        return " (that is trained: train_adversary, or adv-wrappers train-adversary, and then learned:card=FOLDER)"
    if name.partition(":")[0] == "beam":
        return " (a search over whole episodes: beam_search, whose threat is a row of evaluate, or adv-wrappers suite)"
    word, *rest = re.split(r"[\s:(]+", name.strip().lower().replace("_", "-"), maxsplit=1)
    close = difflib.get_close_matches(word, presets, n=1)
    colon = ":..." if rest else ""  # noise eps=0.1
    return f" (did you mean {close[0]}{colon}?)" if close else ""


def parse_threat(text: str, **given: Any) -> ThreatModel:
    """The threat of a text such as ``max-diff:eps=0.075,scale=victim,when=bernoulli(0.1)&atmost(7)``.

    The text is split on its first ``:``, at commas outside quotes and brackets, and on the first ``=`` of each piece;
    lists are written ``a;b``, and a value that holds a comma is quoted; within quotes it is taken as it stands.
    :func:`adv_wrappers.threats.text.text_of` writes what is read here. ``given`` are arguments of :func:`threat`
    that take precedence.

    Raises:
        ThreatError: for text of another form, and whatever :func:`threat` raises.
    """
    name, arguments = read_text(text)
    return threat(name, **{**arguments, **{k: v for k, v in given.items() if v is not None}})


def parse_perturbation(text: str) -> How:
    """The perturbation of a text such as ``max-diff:steps=5``, whose budget and timing are given elsewhere.

    Raises:
        ThreatError: for a text with a budget or a timing, and whatever :func:`parse_threat` raises.
    """
    name, arguments = read_text(text)
    beside = [key for key in _COMMON if key in arguments and key != "victim"]
    if beside:
        raise ThreatError(f"budget and timing go beside the text of {name}, not in it: {', '.join(beside)} in {text!r}")
    return threat(name, **arguments, within=Valid()).how


def read_text(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a threat's text; :class:`ThreatError` for text of another form."""
    if not isinstance(text, str):
        raise ThreatError(f"expected a text such as 'noise:eps=0.1', got {text!r}")
    name, _, rest = text.partition(":")
    _refuse_unwritten(name, text)
    # key=value, each key once
    arguments: dict[str, Any] = {}
    for piece in split_arguments(rest):
        key, equals, value = piece.partition("=")
        key = key.strip()
        _refuse_unwritten(value, text)
        if not equals or not key.isidentifier():
            own = "; MODULE:NAME, an attack of your own, has no text: give it in Python" if name not in presets else ""
            raise ThreatError(f"cannot read {piece!r} in {text!r}: expected key=value{own}")
        if key in arguments:
            raise ThreatError(f"{key} is given twice in {text!r}")
        arguments[key] = unquote(value) if key in TEXTS else parse_value(value.strip())
    return name.strip(), arguments


def _refuse_unwritten(part: str, text: str) -> None:
    """Raise for ``<...>``, by which reports name what has no text form (:mod:`adv_wrappers.threats.text`)."""
    if part.strip().startswith("<"):
        raise ThreatError(
            f"{part.strip()} in {text!r:.200} names something that has no text form, such as a function or a victim "
            f"without a reference: give the threat itself, or its dictionary"
        )


def as_threat(
    how: Any,
    *,
    on: On | None = None,
    within: Budget | None = None,
    when: When | str | None = None,
    at: Any = None,
    eps: float | None = None,
    norm: str | None = None,
    scale: Any = None,
) -> ThreatModel:
    """A threat from whatever a user has: a threat, a perturbation, a text, a dictionary, or a function.

    Arguments given beside it take the place of its own. ``eps``, ``norm`` and ``scale`` are those of :func:`threat`;
    beside a threat that has a ball of its own, those that are not given stay.

    Raises:
        BudgetError: for a budget that is given twice, as ``within`` and by ``eps``, ``norm`` or ``scale``.
        ThreatError: for what is none of these.
    """
    when = parse_when(when) if isinstance(when, str) else when
    given = {key: value for key, value in (("eps", eps), ("norm", norm), ("scale", scale)) if value is not None}
    if given and within is not None:
        raise BudgetError(f"the budget is given twice: within={within!r}, and {', '.join(given)}")
    # a text or a dictionary says it all, a threat may be changed, and a function needs to be told what it perturbs
    if isinstance(how, str):
        return parse_threat(how, within=within, when=when, at=at, **given)
    if isinstance(how, Mapping):
        how = ThreatModel.from_dict(how, load_referenced)
    if given:
        within = _ball(how, given)
    # what was given beside it takes the place of its own
    if isinstance(how, ThreatModel):
        changes: dict[str, Any] = {"within": within, "when": when, "at": at}
        changes = {key: value for key, value in changes.items() if value is not None}
        return replace(how, **changes) if changes else how
    if isinstance(how, type):
        check_how(how)  # raises, and says to call it
    target = how.on if isinstance(how, Perturbation) else on
    if target is None:
        if callable(how):
            raise ThreatError(f"{how!r:.80} does not say what it perturbs: ThreatModel('observation', it, within=...)")
        raise ThreatError(f"expected a threat, a perturbation or a text, got {how!r:.80}")
    return ThreatModel(target, how, within, when, at)


def _ball(how: object, given: Mapping[str, Any]) -> Budget:
    """The budget of ``eps``, ``norm`` and ``scale``; those that are missing are taken from the threat's own ball."""
    old = how.budget if isinstance(how, ThreatModel) else None
    words = {"norm": "linf", **((old and old.frame.words) or {})}
    if "eps" in words and given.get("norm", words["norm"]) == words["norm"]:
        given = {**words, **given}
    name = how.label if isinstance(how, ThreatModel) else getattr(how, "name", getattr(how, "__name__", "the threat"))
    made = parse_budget(name, how, given.get("eps"), given.get("norm"), given.get("scale"))
    return replace(old, within=made) if isinstance(old, OfFrames) else made  # type: ignore[type-var]


def as_actor(actor: object, victim: Victim) -> Actor:
    """An actor, its text or its dictionary, as an actor whose victim is filled in.

    A text is an actor's name, or ``timed:`` and that of a perturbation: ``timed:max-diff:steps=5``.

    Raises:
        ThreatError: for anything else.
    """
    if isinstance(actor, str):
        # a name, or a perturbation that is timed
        name, colon, rest = actor.partition(":")
        if name.strip() == Timed.name:
            if not rest.strip():
                raise ThreatError(f"timed needs the perturbation that it times, as in 'timed:max-diff', got {actor!r}")
            return Timed(parse_perturbation(rest), victim)
        kinds = {name: k for name, k in Value.kinds.items() if issubclass(k, Actor) and k is not Hybrid}
        if colon or actor not in kinds:
            raise ThreatError(f"unknown actor {actor!r}; known: {', '.join(sorted(kinds))}")
        return construct(kinds[actor], victim=victim)
    found = decode(actor, load_referenced) if isinstance(actor, Mapping) else actor
    if not isinstance(found, Actor):
        raise ThreatError(
            f"expected an actor such as SARL() or PAAD(victim), its name or dictionary, got {actor!r:.80}"
        )
    return found.against(victim)


def threat_layers(threat: ThreatModel) -> list[ThreatModel]:
    """The threats that a threat stands for, one a layer, innermost first; more than one for a hybrid adversary."""
    return threat.how.layers(threat) if isinstance(threat.how, Learned) else [threat]


def names(on: On | None = None, where: Callable[[Preset], bool] = lambda preset: True) -> list[str]:
    """Names of the presets, of one target if ``on`` is given."""
    return [name for name, preset in presets.items() if on in (None, preset.on) and where(preset)]
