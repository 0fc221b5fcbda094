"""What one slice came to, in the wire form of tools/bench/measured.h and histogram.h."""

SUB_BITS = 6
SUB_BUCKETS = 1 << SUB_BITS  # of each power of two
LINEAR = 2 * SUB_BUCKETS  # values below have a bucket each


def bucket_of(ns):
    if ns < LINEAR:
        return ns
    shift = ns.bit_length() - SUB_BITS - 1
    return LINEAR + (shift - 1) * SUB_BUCKETS + (ns >> shift) - SUB_BUCKETS


def _histogram(values_ns):
    buckets = {}
    for ns in values_ns:
        bucket = bucket_of(ns)
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return {"min": min(values_ns, default=0), "max": max(values_ns, default=0),
            "sum": sum(values_ns), "buckets": sorted(buckets.items())}


class Measured:
    """Sums of calls that ended well. A call is counted in as little time as Python allows."""

    def __init__(self):
        self.ns = 0
        self.cpu_ns = 0  # this process'
        self.calls_ns = []
        self.chunks = 0
        self.bytes = 0
        self.verified_bytes = 0
        self.wrong_bytes = 0

    @property
    def seconds(self):
        return self.ns / 1e9

    def to_wire(self):
        return {"seconds": self.seconds, "ops": len(self.calls_ns), "chunks": self.chunks,
                "bytes": self.bytes, "copied_bytes": 0, "failed_ops": 0, "first_failure": "",
                "verified_bytes": self.verified_bytes, "wrong_bytes": self.wrong_bytes,
                "client_cpu_seconds": self.cpu_ns / 1e9, "latency": _histogram(self.calls_ns),
                "first_piece": _histogram([])}
