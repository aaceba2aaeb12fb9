"""A gate in your own CI: a test that fails where a new agent does not keep enough of its return under attack.

Put the two functions into a file of your tests, with your agent and your environment, and run it with::

    pytest --adv-budget 60 test_robustness.py
"""

from __future__ import annotations

from adv_wrappers.errors import NotRobust
from adv_wrappers.studies.gate import assert_robust

ATTACKS = ["noise", "fgsm", "pgd", "max-diff"]


def test_small_errors_of_the_sensors_do_not_break_the_agent() -> None:
    """Observations may be off by 0.01: at least 400 of 500 are left."""
    assert_robust("zoo:cartpole-radial-dqn", "CartPole-v1", eps=0.01, min_return=400, attacks=ATTACKS)


def test_what_breaks_is_found() -> None:
    """A plain agent does not keep that much at 0.2, and the error says under which attack and seed."""
    try:
        assert_robust("zoo:cartpole-dqn", "CartPole-v1", eps=0.2, min_return=400, attacks=ATTACKS)
    except NotRobust as error:
        print(error)
    else:
        raise AssertionError("this agent is known to break")


if __name__ == "__main__":
    test_small_errors_of_the_sensors_do_not_break_the_agent()
    test_what_breaks_is_found()
