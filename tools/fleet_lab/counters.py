"""What the daemons count, over time and over their restarts."""

# Names of the daemons' metrics. One without a label is the sum over all of its labels.
COUNTED = ("peer_reads_total", "peer_unserved_reads_total", "peer_cut_reads_total",
           "peer_read_bytes_total", "peer_read_elsewhere_total", "peer_served_bytes_total",
           "peer_searches_total", "peer_questions_total", "peer_failed_questions_total",
           "g4_source_reads_total", "g4_source_failed_reads_total", "g4_source_read_bytes_total",
           "g4_source_written_bytes_total", "g4_written_chunks_total", "g4_dropped_chunks_total",
           "g4_recalled_chunks_total", "g4_failures_total", "g4_late_waits_total",
           "g4_overdue_searches_total", "g4_refused_searches_total", "peer_found_chunks_total",
           'g4_declined_searches_total{reason="few"}', 'g4_declined_searches_total{reason="cost"}',
           'g4_declined_searches_total{reason="rate"}')


def bin_of(at_s, seconds, bins):
    return max(0, min(bins - 1, int(at_s / seconds * bins)))


def sums(values):
    """Returns the values of the names in COUNTED."""
    out = dict.fromkeys(COUNTED, 0)
    for name, value in values.items():
        for counted in {name, name.partition("{")[0]} & out.keys():
            out[counted] += int(value)
    return out


def _sum(counts):
    out = dict.fromkeys(COUNTED, 0)
    for one in counts:
        for name, value in one.items():
            out[name] += value
    return out


class Sampled:
    """A node's samples: what it counted since the one before. A daemon that was started again
    counts from zero; what it counted between the last sample and a kill is lost."""

    def __init__(self):
        self._samples = []  # (from, to, counts)
        self._last, self._last_s = dict.fromkeys(COUNTED, 0), 0.0

    def restarted(self):
        self._last = dict.fromkeys(COUNTED, 0)

    def add(self, at_s, values):
        """values: what the node's metrics say at that time of the run."""
        now = sums(values)
        self._samples.append((self._last_s, at_s, {
            name: value - self._last[name] for name, value in now.items()}))
        self._last, self._last_s = now, at_s

    def totals(self):
        return _sum(counts for _, _, counts in self._samples)

    def around(self, from_s, to_s):
        """Returns the counts of all samples that have a part of this time."""
        return _sum(counts for begin_s, end_s, counts in self._samples
                    if begin_s <= to_s and from_s <= end_s)

    def in_bins(self, seconds, bins):
        """Returns a list of counts, one a bin of the run."""
        out = [[] for _ in range(bins)]
        for _, at_s, counts in self._samples:
            out[bin_of(at_s, seconds, bins)].append(counts)
        return [_sum(counts) for counts in out]
