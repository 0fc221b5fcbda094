"""Results of one contestant in one round: Measured, and Slice, the figures made from it."""

import math
from dataclasses import asdict, dataclass


@dataclass
class Slice:
    """cpu_s: of its own process, while its calls ran; server_cpu_s: of what serves it."""

    seconds: float
    calls: int
    bytes: int
    verified_bytes: int = 0
    wrong_bytes: int = 0
    cpu_s: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    server_cpu_s: float = 0.0

    @property
    def gb_per_s(self):
        return self.bytes / self.seconds / 1e9 if self.seconds else 0


class Measured:
    """Sums of calls that ended well, and the time of each; made so that a call is counted in as
    little time as Python allows."""

    def __init__(self):
        self.ns = self.cpu_ns = 0
        self.calls_ns = []
        self.chunks = self.bytes = self.verified_bytes = self.wrong_bytes = 0

    @property
    def seconds(self):
        return self.ns / 1e9

    def slice(self):
        ordered = sorted(self.calls_ns)

        def quantile_us(share):
            return ordered[math.ceil(share * len(ordered)) - 1] / 1e3 if ordered else 0

        return Slice(self.seconds, len(ordered), self.bytes, self.verified_bytes, self.wrong_bytes,
                     self.cpu_ns / 1e9, quantile_us(0.5), quantile_us(0.99))

    def answer(self):
        """A slice for another process."""
        return asdict(self.slice())
