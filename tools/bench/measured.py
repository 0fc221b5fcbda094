"""Measured: what some work came to, by name, as a client answers it: numbers, words, and times as
histograms. Added up over clients and rounds."""

from histogram import Histogram


class Measured:
    def __init__(self, wire):
        self._values = {name: Histogram(value) if isinstance(value, dict) else value
                        for name, value in wire.items()}

    def __getattr__(self, name):
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def per_second(self, what):
        return self._values[what] / self.seconds if self.seconds > 0 else 0

    @property
    def gb_per_second(self):
        return self.per_second("bytes") / 1e9

    def report(self):
        """For people's scripts: times as quantiles, words only where there are some."""
        found = {}
        for name, value in self._values.items():
            if isinstance(value, Histogram):
                found[f"{name}_us"] = value.report()
            elif value != "":
                found[name] = value
        return found


def added_up(parts, side_by_side):
    """The sum of at least one part. `side_by_side`: the parts ran in the same time, else one after
    the other. Words are the first that are not empty."""
    total = Measured({})
    for name in parts[0]._values:
        values = [part._values[name] for part in parts]
        if isinstance(values[0], Histogram):
            total._values[name] = Histogram()
            for value in values:
                total._values[name].merge(value)
        elif isinstance(values[0], str):
            total._values[name] = next(filter(None, values), "")
        else:
            total._values[name] = sum(values)
    if side_by_side:
        total._values["seconds"] = max(part.seconds for part in parts)
    return total
