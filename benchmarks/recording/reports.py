"""What suites choose, and what is said of stored rows."""

from __future__ import annotations

import functools
import html
import json
import re
from pathlib import Path
from typing import Any

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, digest, in_folder, inner


def suites() -> Items:
    """Which entries of every suite fit six agents, and why not the others."""
    found: Items = {"entries": lambda: {name: [one.name for one in suite] for name, suite in inner("SUITES").items()}}
    for victim, env, eps in (
        ("zoo:cartpole-dqn", "CartPole-v1", 0.1), ("zoo:cartpole-ppo", "CartPole-v1", 0.1),
        ("zoo:mountaincar-dqn", "MountainCar-v0", 0.01), ("zoo:hopper-ppo", "Hopper-v5", 0.075),
        ("zoo:walker-walk-sac", "dm_control/walker-walk-v0", 0.05), ("zoo:pong-ppo", "PongNoFrameskip-v4", 1.0),
    ):  # fmt: skip
        for train in (False, True):
            for norm, budget in {"nothing": None, "linf": adv.Linf(eps), "l2": adv.L2(eps)}.items():
                key = f"{victim} within {norm}{', trained' if train else ''}"
                found[key] = functools.partial(fitting_entries, victim, env, budget, train)
    return found


def fitting_entries(victim: str, env: str, budget: Any, train: bool) -> Value:
    """The names of those of "everything" that fit, and by reason those that do not."""
    setting = inner("AttackSetting")(adv.load_victim(victim), adv.Environment(env), budget, train=train)
    fit, left_out = inner("entries_that_apply")("everything", setting)
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    return {"fit": [entry.name for entry in fit], **{reason: " ".join(left) for reason, left in reasons.items()}}


REPORT = (
    Path(__file__).resolve().parents[2] / "tests" / "recorded" / "report" / "rows.json"
)  # evaluate("zoo:cartpole-dqn", "CartPole-v1", 16 threats, episodes=3)


def reports() -> Items:
    """What is said of stored rows: the table, warnings, the page with its verdict and sections, and aggregates."""
    read = functools.cache(lambda: adv.Report.from_json(REPORT))
    return {
        "table": lambda: str(read()).splitlines(),
        "warnings": lambda: [*read().warnings, *read().footnotes()],
        "model index": lambda: read().to_model_index().splitlines(),
        "data frame": lambda: [[*read().to_dataframe().columns], len(read().to_dataframe(long=True))],
        "page": lambda: page_texts(read()),
        "aggregate": lambda: str(adv.aggregate([read()])).splitlines(),
        "schema": lambda: digest(json.dumps(adv.Report.json_schema(), sort_keys=True)),
        "rows": lambda: [[row["threat"], row["mean_return"], row["low"], row["high"]] for row in read().threats],
    }


def page_texts(report: Any) -> list[str]:
    """Every text of the page, line by line; pictures and scripts are left out."""
    with in_folder() as folder:
        inner("write_page")(report, folder / "page.html")
        page = (folder / "page.html").read_text(encoding="utf-8")
    page = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    page = re.sub(r"</?(a|b|i|em|strong|code|span|abbr)\b[^>]*>", "", page)
    texts = (" ".join(html.unescape(text).split()) for text in re.split(r"<[^>]*>", page))
    return [text for text in texts if text]
