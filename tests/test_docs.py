"""Pages that describe the source name all of it, and nothing that is not there."""

from __future__ import annotations

import builtins
import pkgutil
import re
import sys
from pathlib import Path

import gymnasium as gym
import torch

import adv_wrappers
from tests.every_case import every_case

PACKAGE = Path(adv_wrappers.__file__).parent
ROOT = PACKAGE.parent
# of files that a contributor would write, and of patterns
EXAMPLES = {"attacks/dropout.py", "tests/attacks/test_dropout.py", "AREA/FILE.py", "tests/AREA/test_FILE.py"}


def folders():
    """Folders with modules, and modules beside them."""
    found = [path.parent.name + "/" for path in PACKAGE.glob("*/__init__.py")]
    return sorted(found + [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")])


def test_every_folder_is_on_the_page():
    page = (ROOT / "docs" / "architecture.rst").read_text(encoding="utf-8")
    assert [name for name in folders() if f"``{name}" not in page] == []


def test_every_folder_is_on_the_picture(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from package_map import GROUPS, drawn

    names = re.findall(r'class="name"[^>]*>([^<]+)<', drawn())
    assert set(folders()) <= set(names)
    assert {name for name in set(names) - set(folders()) if not (PACKAGE / "environments" / name).exists()} == set()
    assert re.findall(r'class="group"[^>]*>([^<]+)<', drawn()) == list(reversed(GROUPS.values()))


@every_case("page", ["docs/architecture.rst", "docs/extending.rst", "CONTRIBUTING.md", "tests/README.md"])
def test_named_files_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:adv_wrappers/)?((?:[\w-]+/)*[\w-]+(?:\.py|/))`", text)) - EXAMPLES
    assert named
    missing = [
        name for name in sorted(named) if not any((base / name).exists() for base in (PACKAGE, ROOT, ROOT / "tests"))
    ]
    assert not missing, f"{page} names what is not there: {missing}"


def test_named_functions_and_classes_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    text = page.split("## Where a change goes")[1].split("## Add an attack")[0]
    source = "\n".join(
        path.read_text(encoding="utf-8") for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py")
    )
    defined = set(re.findall(r"^ *(?:class|def) (\w+)|^(\w+)(?:: [^=\n]+)? = ", source, re.MULTILINE))
    known = {name for pair in defined for name in pair} | {"None"}
    assert not set(re.findall(r"`([A-Za-z_]\w*)`", text)) - known


def defined_in(path):
    """Names of a file of the source: its own, and what is defined, assigned or a field in it."""
    yield path.parent.name if path.stem == "__init__" else path.stem
    names = r"\b(?:class|def) (\w+)|\b(\w+)(?:, \w+)*(?:: [^=\n]+)? = |^    (\w+): [A-Z]"
    for found in re.findall(names, path.read_text(encoding="utf-8"), re.MULTILINE):
        yield from found


def test_what_references_name_exists():
    role = r":(class|func|meth|mod|data|attr):`(?:[^`<]*<)?[~!]?([\w.]+)>?(?:\(\))?`"
    sources = [*PACKAGE.rglob("*.py")]
    known = {*dir(builtins), *(name for path in sources for name in defined_in(path))}
    named = {
        found
        for path in [*sources, *(ROOT / "docs").rglob("*.rst")]
        for found in re.findall(role, path.read_text(encoding="utf-8"))
    }
    others = {"gymnasium", "numpy", "stable_baselines3", "torch", *sys.stdlib_module_names}
    ours = {(kind, target) for kind, target in named if target.partition(".")[0] not in others}
    assert {target for _, target in ours if target.rpartition(".")[2] not in known} == set()
    missing = []
    for target in {target for kind, target in ours if kind != "attr" and target.startswith("adv_wrappers.")}:
        try:
            pkgutil.resolve_name(target)
        except (ImportError, AttributeError):
            missing.append(target)
    assert missing == []


def test_every_citation_is_in_the_bibliography():
    known = re.findall(
        r"^   ([A-Z].* \d{4})$", (ROOT / "docs" / "bibliography.rst").read_text(encoding="utf-8"), re.MULTILINE
    )
    name = r"(?<!\w)(?:[A-Z][a-z]+, )*[A-Z][a-z]+(?: et al\.| and [A-Z][a-z]+)"
    cited = set()
    for folder in ("adv_wrappers", "examples", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".rst", ".md") and not {"_generated", "bibliography.rst"} & set(path.parts):
                for who, year in re.findall(rf"({name})\s+\(?((?:19|20)\d\d)\b", path.read_text(encoding="utf-8")):
                    cited.add(f"{who} {year}")
    assert len(known) > 20
    assert sorted(cited - set(known)) == []


def test_every_threat_beside_a_question_fits_an_environment(tmp_path):
    page = (ROOT / "docs" / "threats_by_question.rst").read_text(encoding="utf-8")
    learned, model = tmp_path / "learned", tmp_path / "model"
    director = adv_wrappers.adversaries.Director(torch.nn.Sequential(torch.nn.Linear(4, 4)), discrete=False)
    adv_wrappers.Learned(director, adv_wrappers.SARL()).save(learned, within=adv_wrappers.Linf(0.1))
    adv_wrappers.train_dynamics("zoo:hopper-ppo", "Hopper-v5", 100, hidden=(), num_envs=2, out=model)
    lake = gym.make("FrozenLake-v1")
    of_states = adv_wrappers.from_module(torch.nn.Embedding(16, 4), lake.observation_space, lake.action_space, "q")
    pong = adv_wrappers.atari.atari("PongNoFrameskip-v4")
    places = {
        "model=|dynamics|action-noise:eps": (gym.make("Hopper-v5"), "zoo:hopper-ppo"),
        "norm=valid|discrete-search": (lake, of_states),
        "brightness|blur|jpeg|rotation|perspective|shift|occlusion|newest": (pong, "zoo:pong-ppo"),
        "": (gym.make("CartPole-v1"), "zoo:cartpole-dqn"),
    }
    texts = dict.fromkeys(re.findall(r"``([a-z-]+:[a-z]+=[^`]+|reward-clip)``", page))
    assert len(texts) > 50
    for text in texts:
        env, victim = next(place for named, place in places.items() if re.search(named, text))
        folder = str(learned if text.startswith("learned") else model)
        adv_wrappers.wrap(env, text.replace("FOLDER", folder), victim=victim)


METAPHORS = r"\b(?:struck|unstruck|strikes?|steer\w*|chairs?|seats?|pilots?|handed|gentl[ey]|settle[sd]?|toss(?:es)?)\b"


def test_pages_use_the_words_of_the_field():
    pages = [*(ROOT / "docs").rglob("*.rst"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    pages += [ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"]
    found = {}
    for path in pages:
        if "_generated" not in path.parts and "_build" not in path.parts:
            words = re.findall(METAPHORS, path.read_text(encoding="utf-8"), re.IGNORECASE)
            found |= {str(path.relative_to(ROOT)): words} if words else {}
    assert found == {}
