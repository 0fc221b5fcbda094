"""From what was measured to figures: medians, ranges, and ratios of what was measured together.

A row is what one arm did in one round: {"arm", "round", and measures}. A ratio is taken within a
round, between arms that were measured minutes apart at most; what is said of it is the median over
rounds, its range, and its spread: (max - min) / median.
"""

import statistics

# measure: whether more of it is better
MEASURES = {"ttft_s": False, "ttft_p50_s": False, "ttft_p90_s": False, "ttft_p99_s": False,
            "itl_s": False, "itl_p99_s": False, "tps": True, "hit_ratio": True,
            "host_bytes": False, "store_cpu_s": False}


def of_round(arm, number, asked, seconds, requests):
    """A row. asked: the prompts; requests: for each what the engine said of it: ttft_s, itl_s (a
    list), cached, tokens. seconds: from the first prompt to the last token."""
    if len(asked) != len(requests) or not asked:
        raise ValueError(f"{len(asked)} prompts and {len(requests)} answers")
    gaps = [gap for one in requests for gap in one["itl_s"]]
    row = {"arm": arm, "round": number,
           "ttft_s": statistics.fmean(one["ttft_s"] for one in requests),
           "hit_ratio": sum(one["cached"] for one in requests) / sum(map(len, asked))}
    if gaps:  # answers of one token say nothing more
        row["itl_s"] = statistics.fmean(gaps)
        row["tps"] = sum(len(one["tokens"]) for one in requests) / seconds
    return row


def percentiles(requests):
    """More of a row, where many are asked at a time."""
    ttft = sorted(one["ttft_s"] for one in requests)
    gaps = sorted(gap for one in requests for gap in one["itl_s"])
    return {**{f"ttft_p{percent}_s": nearest(ttft, percent) for percent in (50, 90, 99)},
            **({"itl_p99_s": nearest(gaps, 99)} if gaps else {})}


def nearest(ranked, percent):
    """Returns the nearest rank: one of the values, and of few the last one for 99."""
    return ranked[max(-(-len(ranked) * percent // 100) - 1, 0)]


def summary(values):
    """None of nothing."""
    values = list(values)
    if not values:
        return None
    median = statistics.median(values)
    return {"median": median, "min": min(values), "max": max(values), "count": len(values),
            "spread": (max(values) - min(values)) / median if median else 0.0}


def by_round(rows, arm, measure):
    return {row["round"]: row[measure] for row in rows
            if row["arm"] == arm and row.get(measure) is not None}


def arms_of(rows):
    """In the order of their first rows."""
    return list(dict.fromkeys(row["arm"] for row in rows))


def of_arms(rows):
    """{arm: {measure: summary}}."""
    return {arm: {measure: said for measure in MEASURES
                  if (said := summary(by_round(rows, arm, measure).values()))}
            for arm in arms_of(rows)}


def ratios(rows, base):
    """{arm: {measure: summary of arm / base}}; hit ratios are no ratios of each other."""
    out = {}
    for arm in arms_of(rows):
        if arm == base:
            continue
        out[arm] = {}
        for measure in MEASURES:
            mine, theirs = (by_round(rows, one, measure) for one in (arm, base))
            if measure != "hit_ratio":
                said = summary(mine[at] / theirs[at] for at in mine if theirs.get(at))
                if said:
                    out[arm][measure] = said
    return out
