"""Cards on the Hugging Face Hub: a model's repository with the two files of a card, sent and fetched.

A card from there is a stranger's, and is read as any other: its two files are fetched and nothing else of the
repository, none longer than what is read of a file, and no code in them runs. ``huggingface_hub`` has the token, the
cache (``HF_HOME``) and the network; with ``HF_HUB_OFFLINE=1`` only what the cache holds is found.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.reading import check_size, decoding
from adv_wrappers.victims.card import load_card

_FILES = ("card.json", "weights.safetensors")


def _hub() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise VictimError("the Hub needs huggingface_hub: pip install 'adv_wrappers[hub]'") from error


def push_to_hub(folder: str | Path, repository: str, *, private: bool = False) -> str:
    """Send a card to the Hugging Face Hub, as the newest commit of a repository, and return its reference there.

    Args:
        folder: the card, as :func:`adv_wrappers.save_card` and trainings write it. A ``README.md`` beside its two files
            goes with them: :meth:`adv_wrappers.Report.to_model_index` writes results for its head.
        repository: ``user/name``. It is made where it is missing; ``hf auth login`` or ``HF_TOKEN`` says who sends.
        private: whether a repository that is made is private.

    Returns:
        ``hub:user/name@COMMIT``, which :func:`adv_wrappers.load_victim` takes.

    Raises:
        CardError: for a folder that holds no victim's card.
        VictimError: where huggingface_hub is missing.
    """
    load_card(folder)
    api = _hub().HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    sent = api.upload_folder(repo_id=repository, folder_path=folder, allow_patterns=[*_FILES, "README.md"])
    return f"hub:{repository}@{sent.oid}"


def fetch(place: str, max_bytes: int | None = None) -> tuple[Path, str]:
    """The folder of a card that was fetched, and its reference with the commit.

    Args:
        place: ``user/name@revision``; a revision is a commit, a branch or a tag.
        max_bytes: how long either file may be; None is 256 MiB.

    Raises:
        VictimError: for a place without a revision, and where huggingface_hub is missing.
        CardError: for what cannot be fetched, and longer files, which are not fetched.
    """
    repository, _, revision = place.partition("@")
    if not repository or not revision:
        raise VictimError(
            f"a card on the Hub is hub:user/name@revision, such as a commit, or main for the newest, got 'hub:{place}'"
        )
    # the size is asked for before a file is fetched
    hub, paths = _hub(), list[Path]()
    with decoding(f"hub:{place}"):
        for name in _FILES:
            found = hub.hf_hub_download(repository, name, revision=revision, dry_run=True)
            check_size(found.file_size or 0, max_bytes)
            # the same commit for both, wherever the branch is by now
            revision = found.commit_hash
            paths.append(Path(hub.hf_hub_download(repository, name, revision=revision)))
    return paths[0].parent, f"hub:{repository}@{revision}"
