"""Links between nodes, and to what they share: our side of the relay, and the bridge's cables."""

import pathlib
import sys

from faults import BUCKET, link_settings
from processes import Child

RELAY = pathlib.Path(__file__).with_name("relay.py")


def name_of(one, other):
    return f"{one}->{other}"


class Links:
    """A link for each pair of ends, in each way that connections are made. What faults.py says is
    done here; links that a fault touches are `troubled` until they are healed."""

    def __init__(self, network, nodes, environment, log):
        self._network, self._nodes = network, nodes
        self._relay = Child("the relay", [sys.executable, "-B", RELAY], environment, log)
        self._relay.ask("host", host=network.gateway)
        self._settings, self._cut = {}, set()

    def add(self, one, other, host, port):
        """Returns the port at the gateway by which `one` reaches `other`."""
        self._settings[one, other] = {}
        return self._relay.ask("add", name=name_of(one, other), host=host, port=port)["port"]

    def _of(self, ends):
        """Returns the links that touch all of these ends."""
        return [pair for pair in self._settings if all(end in pair for end in ends)]

    def _set(self, pairs, **settings):
        for pair in pairs:
            self._settings[pair] = {**self._settings[pair], **settings} if settings else {}
            self._relay.ask("set", name=name_of(*pair), **self._settings[pair])

    def slow(self, ends, settings):
        self._set(self._of(ends), **link_settings(settings))

    def partition(self, ends):
        if len(ends) == 1 and ends[0] != BUCKET and self._network.cut(ends[0]):
            self._cut.add(ends[0])
        else:
            self._set(self._of(ends), shut=["there", "back"])

    def half_open(self, ends):
        """What the first end sends to the second one is lost."""
        one, other = ends
        for pair in self._of(ends):
            self._set([pair], shut=["there" if pair == (one, other) else "back"])

    def reset(self, ends):
        for pair in self._of(ends):
            self._relay.ask("reset", name=name_of(*pair))

    def heal(self, ends):
        self._set(self._of(ends))
        for node in self._cut & set(ends or self._nodes):
            self._network.join(node)
            self._cut.discard(node)

    def moved(self):
        """Returns {(from, to): bytes} since the start, protocols' own bytes included."""
        said, out = self._relay.ask("bytes"), {}
        for one, other in self._settings:
            ways = said[name_of(one, other)]
            for pair, way in (((one, other), "there"), ((other, one), "back")):
                out[pair] = out.get(pair, 0) + ways[way]
        return out

    def stop(self):
        self._relay.stop()
