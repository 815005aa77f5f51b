"""A custom statistic: the share of a column's dates that are on a weekend."""

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets import MergeableStatistic


class WeekendShare(MergeableStatistic):
    """The share of dates on a Saturday or Sunday.

    Without any date, it is null.
    """

    name = "weekend_share"
    revision = "1"
    types = ("date",)
    state = pa.struct([("weekend", pa.int64()), ("all", pa.int64())])
    result = pa.float64()

    def initial(self):
        return {"weekend": 0, "all": 0}

    def update(self, state, values, counts):
        weekend = pc.greater_equal(pc.day_of_week(values), 5)  # Monday is 0
        return {
            "weekend": state["weekend"] + (pc.sum(counts.filter(weekend)).as_py() or 0),
            "all": state["all"] + pc.sum(counts).as_py(),
        }

    def merge(self, one, other):
        return {key: one[key] + other[key] for key in one}

    def retract(self, whole, part):
        return {key: whole[key] - part[key] for key in whole}

    def finalize(self, state):
        return state["weekend"] / state["all"] if state["all"] else None
