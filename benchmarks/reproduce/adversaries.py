"""What the scripts about adversaries that learn share: whom they attack, and trainings that are kept."""

from __future__ import annotations

import os
import shutil
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from page import load

import adv_wrappers as adv
from adv_wrappers.adversaries import PAAD, SARL, Learned
from adv_wrappers.training.adversary import train_adversary

EVERY = 50_000  # steps between two checkpoints
STRONG = "max-diff:restarts=6,keep=best,noise=0"  # a search for the largest divergence, not one ascent with noise
SPARE = 15  # these trainings run beside whatever else the machine does


@dataclass(frozen=True)
class Row:
    """A victim, its environment and its budget ``Linf(eps, scale="victim")``."""

    victim: str
    env: str
    eps: float

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.victim.replace(':', '-')}-{self.eps:g}"

    @property
    def gaussian(self) -> bool:
        """Whether the victim is a Gaussian policy that plays its mean; those of saddpg are deterministic."""
        return not self.victim.startswith("saddpg-")

    def load(self, victims: Path) -> adv.Victim:
        """The victim: one of the zoo, or a card in a folder."""
        return adv.load_victim(self.victim if ":" in self.victim else f"card:{victims / self.victim}")


ROWS = (
    Row("zoo:hopper-ppo", "Hopper-v5", 0.075), Row("zoo:walker2d-ppo", "Walker2d-v5", 0.05),
    Row("wocar-hopper-ppo", "Hopper-v4", 0.075), Row("wocar-walker-ppo", "Walker2d-v4", 0.05),
    Row("wocar-walker-ppo", "Walker2d-v4", 0.15), Row("saddpg-hopper-vanilla", "Hopper-v4", 0.075),
    Row("saddpg-ant-vanilla", "Ant-v4", 0.2),
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One training: ``kind`` is ``sa-rl``, or ``pa-ad`` with a ``form``."""

    row: Row
    kind: str
    form: str | None
    seed: int
    steps: int
    weight: float = 1.0

    @property
    def setting(self) -> str:
        """The kind and its form."""
        weight = "" if self.weight == 1.0 else f"-weight{self.weight:g}"
        return self.kind + (f"-{self.form}" if self.form else "") + weight

    def folder(self, work: Path) -> Path:
        """Where the training is kept; one that goes on for longer has a folder of its own."""
        return work / self.row.name / f"{self.setting}-s{self.seed}-{self.steps // 1000}k"


def train(job: Job, victims: Path, work: Path) -> Learned:
    """Train, go on with, or read what is finished. A longer training goes on from the longest that is there."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    victim, out = job.row.load(victims), job.folder(work)
    if not out.exists():
        pattern = f"{job.setting}-s{job.seed}-*k"
        shorter = [f for f in out.parent.glob(pattern) if int(f.name.rsplit("-", 1)[1][:-1]) * 1000 < job.steps]
        if shorter:
            start = max(shorter, key=lambda f: int(f.name.rsplit("-", 1)[1][:-1]))
            shutil.copytree(start, beside := out.with_name(f".{out.name}"), dirs_exist_ok=True)
            os.replace(beside, out)
    actor = SARL() if job.kind == "sa-rl" else PAAD(victim, form=job.form, weight=job.weight)

    def tell(steps: int, left: float) -> None:
        print(f"{job.row.name} {job.setting} s{job.seed} {steps} {left:.1f}", flush=True)

    return train_adversary(
        actor,
        job.row.env,
        victim,
        job.row.eps,
        job.steps,
        scale="victim",
        seed=job.seed,
        out=out,
        progress=tell,
        checks=max(job.steps // EVERY, 1),
    )


def train_all(jobs: list[Job], victims: Path, work: Path, processes: int) -> None:
    """All of them, several at a time."""
    with ProcessPoolExecutor(processes, initializer=os.nice, initargs=(SPARE,)) as pool:
        for future in [pool.submit(_train, job, victims, work) for job in jobs]:
            future.result()


def _train(job: Job, victims: Path, work: Path) -> None:
    train(job, victims, work)


def record_of(folder: Path) -> list[dict[str, Any]]:
    """Checkpoints of a training."""
    return list(load(folder / "state.json")["record"])
