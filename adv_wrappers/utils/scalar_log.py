"""Where numbers of a training or a report go: TensorBoard, Weights & Biases or MLflow, each by its own API.

Neither Weights & Biases nor MLflow is imported here: whoever has a run of theirs has done so.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.utils.files import probe

# writes numbers and texts by their tags, such as ``attack/return``, at a number of steps
Write = Callable[[Mapping[str, float | str], int], None]


def scalar_log(log: object) -> Write:
    """A function that writes numbers by their tags, and the steps that they belong to.

    Args:
        log: a folder for files of TensorBoard; a ``SummaryWriter`` of torch, or whatever else has its ``add_scalar``; a
            run of Weights & Biases (``wandb.init()``), whose rows have the steps as ``global_step``, the x-axis there;
            or one of MLflow (``mlflow.start_run()``), where letters that its names cannot have become ``_``.

    Raises:
        AdvWrappersError: for a folder, where tensorboard is missing.
        OutputError: for a folder that cannot be written to.
        ValueRangeError: for any other value.
    """
    to: Any = log
    if isinstance(to, (str, Path)):
        return _to_writer(summary_writer(to), flushed=True)
    if _is_of("wandb", "Run", to):
        return _to_wandb(to)
    if _is_of("mlflow.entities", "Run", to):
        return _to_mlflow(to)
    if hasattr(to, "add_scalar"):
        return _to_writer(to)
    raise ValueRangeError(
        f"log= takes a folder, a SummaryWriter, or a run of Weights & Biases or MLflow, got {to!r:.80}"
    )


def optional_log(log: object, tensorboard: object = None) -> Write | None:
    """:func:`scalar_log`, or None for no log; ``tensorboard`` is its name before 0.3."""
    if tensorboard is not None:
        warnings.warn("tensorboard= is now log=", DeprecationWarning, stacklevel=3)
        log = tensorboard
    return None if log is None else scalar_log(log)


def _is_of(module: str, name: str, value: object) -> bool:
    """Whether a value is of a class of a module that somebody has imported."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))


def summary_writer(folder: str | Path) -> Any:
    """TensorBoard's writer into a folder, with the errors of :func:`scalar_log`."""
    try:
        module = importlib.import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise AdvWrappersError(
            "a log in a folder needs tensorboard: pip install 'adv_wrappers[tensorboard]'"
        ) from error
    probe(Path(folder))
    return module.SummaryWriter(str(folder))


def _to_writer(writer: Any, flushed: bool = False) -> Write:
    def write(values: Mapping[str, float | str], step: int) -> None:
        for tag, value in values.items():
            if isinstance(value, str):
                writer.add_text(tag, value, step)
            else:
                writer.add_scalar(tag, value, step)
        if flushed:  # nobody has the writer, to close it
            writer.flush()

    return write


def _to_wandb(run: Any) -> Write:
    groups = set[str]()

    def write(values: Mapping[str, float | str], step: int) -> None:
        for group in {tag.partition("/")[0] for tag in values} - groups:
            run.define_metric(f"{group}/*", step_metric="global_step")
            groups.add(group)
        # a step= below the last one that the run has seen would be dropped
        run.log({**values, "global_step": step})

    return write


def _to_mlflow(run: Any) -> Write:
    client = importlib.import_module("mlflow").MlflowClient()

    def write(values: Mapping[str, float | str], step: int) -> None:
        for tag, value in values.items():
            if isinstance(value, str):
                client.log_text(run.info.run_id, value, f"{tag}.md")
            else:
                # the names that are allowed on every platform
                client.log_metric(run.info.run_id, re.sub(r"[^\w./ -]", "_", tag), value, step=step)

    return write
