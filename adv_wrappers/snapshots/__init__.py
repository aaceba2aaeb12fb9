"""Save the state of an environment, come back to it, and try actions from it."""

from __future__ import annotations

from adv_wrappers.snapshots.hash_of_state import StateFingerprints
from adv_wrappers.snapshots.repeats_after_restore import check_repeats
from adv_wrappers.snapshots.restore_by_replaying import ReplayRecorder, record_for_replay
from adv_wrappers.snapshots.snapshot import Snapshot, random_states
from adv_wrappers.snapshots.try_actions import Simulator

__all__ = [
    "ReplayRecorder",
    "Simulator",
    "Snapshot",
    "StateFingerprints",
    "check_repeats",
    "random_states",
    "record_for_replay",
]
