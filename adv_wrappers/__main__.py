"""``python -m adv_wrappers`` is the command line of :mod:`adv_wrappers.cli`."""

from __future__ import annotations

from adv_wrappers.cli import main

if __name__ == "__main__":
    main(prog_name="adv-wrappers")
