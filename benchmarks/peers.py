"""The attacks of other libraries on the same network, for ``benchmarks/attacks.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

EPS, STEP = 8 / 255, 0.25
Call = Callable[[], Any]


def torchattacks(net: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Call:
    """``torchattacks.PGD``, or ``FGSM``."""
    from torchattacks import FGSM, PGD

    pgd = {"eps": EPS, "alpha": STEP * EPS, "steps": steps, "random_start": False}
    attack = FGSM(net, eps=EPS) if steps == 1 else PGD(net, **pgd)
    return lambda: attack(x, labels)


def foolbox(net: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Call:
    """``foolbox.attacks.LinfPGD``, or ``FGSM``."""
    import foolbox as fb

    model = fb.PyTorchModel(net.eval(), bounds=(0, 1))
    if steps == 1:
        attack = fb.attacks.FGSM(random_start=False)
    else:
        attack = fb.attacks.LinfPGD(abs_stepsize=STEP * EPS, steps=steps, random_start=False)
    criterion = fb.criteria.Misclassification(labels)
    return lambda: attack.run(model, x, criterion, epsilon=EPS)


def art(net: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Call:
    """``art.attacks.evasion.ProjectedGradientDescentPyTorch``, or ``FastGradientMethod``."""
    from art.attacks.evasion import FastGradientMethod
    from art.attacks.evasion.projected_gradient_descent.projected_gradient_descent_pytorch import (
        ProjectedGradientDescentPyTorch,
    )
    from art.estimators.classification.pytorch import PyTorchClassifier

    actions = int(net(x[:1]).shape[-1])
    model = PyTorchClassifier(
        net, nn.CrossEntropyLoss(), tuple(x.shape[1:]), actions, clip_values=(0.0, 1.0), device_type="cpu"
    )
    if steps == 1:
        attack = FastGradientMethod(model, eps=EPS, batch_size=len(x))
    else:
        attack = ProjectedGradientDescentPyTorch(
            model, eps=EPS, eps_step=STEP * EPS, max_iter=steps, num_random_init=0, batch_size=len(x), verbose=False
        )
    array, targets = x.numpy(), labels.numpy()
    return lambda: attack.generate(array, targets)


PEERS = {"torchattacks": torchattacks, "foolbox": foolbox, "ART": art}
PACKAGES = ("torchattacks", "foolbox", "adversarial-robustness-toolbox")
