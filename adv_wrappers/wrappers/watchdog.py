"""Says which call of an environment has not answered for a while.

A thread looks at the stacks of the others every few seconds, and finds the frames of the calls there. So nothing is
noted when a call begins or ends, and a step costs what it cost.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType

HANGING_SECONDS = 30.0  # without an answer, after which it is said which call waits
_LOOKS = 6  # in that time

Key = tuple[object, ...]
Describe = Callable[[FrameType], tuple[str, Key]]


class Watchdog:
    """Looks for calls that do not end.

    Args:
        calls: by the code of a function that is watched, what describes a frame of it: a text, and what differs between
            one call and the next.
        wanted: whether there is anything to watch beside calls that are under way; the thread ends where there is not.
        seconds: after which a call is told of.
        tell: is given the sentence.
    """

    def __init__(
        self,
        calls: Mapping[CodeType, Describe],
        wanted: Callable[[], bool],
        seconds: float = HANGING_SECONDS,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self._calls, self._wanted, self._seconds = calls, wanted, seconds
        self._tell = tell or (lambda sentence: print(sentence, file=sys.stderr, flush=True))
        self._since: dict[int, tuple[Key, float, bool]] = {}  # by thread: its call, from when on, whether it was told
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look, unless that is under way."""
        if self._thread is None or not self._thread.is_alive():  # it does not live on in a forked process
            self._thread = threading.Thread(target=self._run, name="adv_wrappers-watchdog", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds / _LOOKS)
            if not self.look(time.monotonic()) and not self._wanted():
                return

    def look(self, now: float) -> bool:
        """Look at all threads at a time in seconds, and tell of calls that last too long; whether any is under way."""
        found: dict[int, tuple[Key, float, bool]] = {}
        for thread, top in sys._current_frames().items():
            frame: FrameType | None = top
            while frame is not None and frame.f_code not in self._calls:
                frame = frame.f_back
            if frame is None:
                continue
            text, key = self._calls[frame.f_code](frame)
            key = (id(frame), *key)
            before = self._since.get(thread)
            since, told = (now, False) if before is None or before[0] != key else before[1:]
            if not told and now - since >= self._seconds:
                where = f"{os.path.basename(top.f_code.co_filename)}, line {top.f_lineno}"
                self._tell(f"{text} has not answered for {now - since:.0f} s (it is in {where})")
                told = True
            found[thread] = key, since, told
        self._since = found
        return bool(found)
