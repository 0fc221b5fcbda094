"""How long things took, as the clients count it (client/histogram.h): 64 buckets for each power of
two, below 128 ns one for each nanosecond."""

import math

SUB_BITS = 6
SUB_BUCKETS = 1 << SUB_BITS
LINEAR = 2 * SUB_BUCKETS


def _middle_of(bucket):
    if bucket < LINEAR:
        return bucket
    shift = (bucket - LINEAR) // SUB_BUCKETS + 1
    return ((SUB_BUCKETS + (bucket - LINEAR) % SUB_BUCKETS) << shift) + (1 << (shift - 1))


class Histogram:
    def __init__(self, wire=None):
        """`wire`: as a client answers it."""
        wire = wire or {"buckets": []}
        self._buckets = dict(map(tuple, wire["buckets"]))
        self.count = sum(self._buckets.values())
        self.sum_ns = wire["sum"] if self.count else 0
        self.min_ns = wire["min"] if self.count else math.inf
        self.max_ns = wire["max"] if self.count else 0

    def merge(self, other):
        for bucket, times in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.min_ns = min(self.min_ns, other.min_ns)
        self.max_ns = max(self.max_ns, other.max_ns)

    def quantile_us(self, quantile):
        """The value that such a share does not exceed. 0 when empty."""
        wanted, seen = math.ceil(quantile * self.count), 0
        for bucket, times in sorted(self._buckets.items()):
            seen += times
            if seen >= wanted:
                return min(max(_middle_of(bucket), self.min_ns), self.max_ns) / 1e3
        return self.max_ns / 1e3

    def report(self):
        """Microseconds, but for the count."""
        return {"count": self.count, "min": self.min_ns / 1e3 if self.count else 0,
                "p50": self.quantile_us(0.5), "p99": self.quantile_us(0.99),
                "p999": self.quantile_us(0.999), "max": self.max_ns / 1e3,
                "mean": self.sum_ns / self.count / 1e3 if self.count else 0}
