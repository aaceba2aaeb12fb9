"""What Oikarinen et al. 2020 measured of RADIAL: their Table 1 and section 4.3, for the pages that stand beside them.

Returns are means of 20 episodes with the standard error of the mean, under budgets relative to the range of a pixel,
on 80x80 crops of one grey frame (their appendix B). None stands where they have no
figure. Freeway, and the rows that they copied from other papers, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

Cells = tuple[str, str, str | None, str | None]  # nominal, under PGD at 1/255 and at 3/255, GWC at 1/255

TABLE_1: dict[str, dict[str, Cells]] = {
    "Pong": {
        "DQN": ("20.55 +- 0.11", "-21.0 +- 0.0", "-21.0 +- 0.0", "-21.0 +- 0.0"),
        "RADIAL-DQN": ("20.85 +- 0.08", "20.8 +- 0.09", "20.8 +- 0.09", "-1.85 +- 4.62"),
        "A3C": ("21.0 +- 0.0", "-20.6 +- 0.18", "-21.0 +- 0.0", "-21.0 +- 0.0"),
        "RADIAL-A3C": ("20.0 +- 0.0", "20.0 +- 0.0", "20.0 +- 0.0", "20.0 +- 0.0"),
    },
    "BankHeist": {
        "DQN": ("641.0 +- 31.6", "0.0 +- 0.0", "1.0 +- 0.7", "0.0 +- 0.0"),
        "RADIAL-DQN": ("1033.5 +- 23.0", "1038.0 +- 23.0", "833.5 +- 45.2", "1048.0 +- 32.3"),
        "A3C": ("1099.0 +- 22.2", "197.5 +- 15.5", "16.5 +- 2.5", "0.0 +- 0.0"),
        "RADIAL-A3C": ("852 +- 7.3", "848.0 +- 3.8", "827.0 +- 6.0", "832.5 +- 4.1"),
    },
    "RoadRunner": {
        "DQN": ("38635 +- 1489", "0.0 +- 0.0", "0.0 +- 0.0", "0.0 +- 0.0"),
        "RADIAL-DQN": ("41720 +- 3289", "43920 +- 1238", "12480 +- 901", "33745 +- 2389"),
        "A3C": ("36670 +- 1313", "4930 +- 710", "1305 +- 206", "0.0 +- 0.0"),
        "RADIAL-A3C": ("28975 +- 1369", "30435 +- 1504", "30620 +- 1141", "29595 +- 1428"),
    },
}
AGENTS = (
    "The paper's agents are DQN (6 million steps, then 4.5 million with RADIAL) and A3C (20 and 10 million), trained "
    "at 1/255 on 80x80 crops of a single grey frame. Its figures are means of 20 episodes +- the standard error of the "
    "mean; it does not say of how many trainings"
)


@dataclass(frozen=True)
class Points:
    """What section 4.3 says of an eps of figure 2: RADIAL-A3C on Pong's second point, 20 episodes.

    Attributes:
        eps: in grey levels, as which its bare numbers are read: the agent was trained at 1/255.
        finished: searches that ended within 5000 sequences; GWC was AWC in all of them.
        won: of these, those with an AWC of +1; None where the paper has it in the figure alone.
        acr: the mean over episodes, of the two means that the paper has; None where it has none.
    """

    eps: float
    finished: int
    won: int | None = None
    acr: float | None = None


POINTS_EPISODES = 20
POINTS = (Points(1.15, 20, 14, (14 * 0.873 + 6 * 0.938) / 20), Points(1.2, 6))
