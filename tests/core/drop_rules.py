"""Rules for giving up heads that lost to the one in use, for the record: ``python -m tests.core.drop_rules`` prints them.

Figures and discussion: docs/decisions/0002-pod-policy.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.pod.policies import deadline

from tests.core.virtual_pod import share_on_time, steady

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment
    from harness_core.queue import Ranked

window = deadline._heads_to_skip
"""The rule in use: the oldest head whose batch reaches min(b*, what waits behind it)."""


def never(_lane: Lane, _band: Ranked, _moment: Moment) -> int:
    """Plain EDF."""
    return 0


def full_plan_only(lane: Lane, band: Ranked, moment: Moment) -> int:
    """Only where b* rows wait behind the head (warning (c) of scheduling.md §1, read strictly)."""
    waiting, plan = band.rows, lane.plan(moment.now_ns, moment.delay_ns)
    for index, item in enumerate(band.items):
        if waiting < plan:
            return 0
        if lane.timing.fit(item[3].target - moment.base_ns) >= plan:
            return index
        waiting -= item[3].rows
    return 0


def growth_over_drops(lane: Lane, band: Ranked, moment: Moment) -> int:
    """Only where the batch grows by more than the heads given up (rows of 1)."""
    index = window(lane, band, moment)
    sizes = [min(lane.timing.fit(band.items[at][3].target - moment.base_ns), len(band.items) - at) for at in (0, index)]
    return index if sizes[1] - sizes[0] > index else 0


NAMES = {window: "window", full_plan_only: "full plan only", growth_over_drops: "growth > drops", never: "never"}


def main() -> None:
    """Print on-time requests/s of each rule, two seeds of 6 s."""
    print("on-time requests/s; l = 5 + b ms, max batch 32; one model D 50 ms | four models D 100 ms | eight, D 120 ms")
    for rule, name in NAMES.items():
        deadline._heads_to_skip = rule
        tables = []
        for rates, changes in (
            ((720, 864, 1080), {}),
            ((600, 800), {"models": 4, "deadline_ms": 100}),
            ((500, 700), {"models": 8, "deadline_ms": 120, "shape": 0.5}),
        ):
            tables.append([round(rate * share_on_time(steady(rate, 6, **changes), (1, 2))) for rate in rates])
        print(f"  {name:18} {tables}")
    deadline._heads_to_skip = window


if __name__ == "__main__":
    main()
