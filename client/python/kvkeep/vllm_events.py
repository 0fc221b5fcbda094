"""vLLM: reports the pool's chunks to routers by the engine's own stream (the option events,
"engine").

vLLM's publisher reports a chunk, with its tokens, when this engine has stored or loaded it, and its
end when the daemon has it no more. The payload is vLLM's own (offloading/events.py), with the
medium "CPU". vLLM has recorded it by then and keeps it until its end is reported here: a key has
holders (jobs, requests that found it, its report), and once it has none vLLM alone is told of its
end. Chunks that tokens alone do not find are not reported.

A Watch tells which chunks come and go. A chunk that it reports as gone is looked up, as its account
may begin in the middle; a chunk that is there is hardly ever looked up, as that counts as a use.
Both happen in steps, so an idle engine reports later. At most 16,384 chunks are reported at a time;
above that, the one that was not stored or loaded for the longest time is reported as gone.

For the scheduler's thread only. No call waits.
"""

import collections
import time

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import Medium, OffloadingEvent

from kvkeep import calls, errors
from kvkeep.engine import Breaker
from kvkeep.watch import Begin, Watch

logger = init_logger(__name__)

_MOST = 16_384
_LOOK_S, _LOOK_FOR_S = 0.05, 0.002  # how often the watch is polled, and for how long at a time
_CHUNKS_AT_ONCE, _AGAIN_S = 1024, 1.0  # of a lookup: keys times parts; after a failed one


class EngineEvents:
    """ns: the namespace of the reported group. completions: of its client. tellable(key, request)
    returns the daemon's key for a key of vLLM's, or None if it is not to be reported."""

    def __init__(self, ns, completions, tellable, timeout_s, clock=time.monotonic):
        self._ns, self._completions, self._tellable = ns, completions, tellable
        self._timeout_s, self._clock = timeout_s, clock
        self._breaker, self._refused, self._ask_at = Breaker(clock=clock), None, 0.0
        self._watch, self._looked = Watch(ns), float("-inf")
        self._told = collections.OrderedDict()  # the daemon's key: vLLM's; the latest used last
        self.reset()

    def reset(self):
        """Forgets everything, as vLLM has."""
        self._told.clear()
        self._prepared = {}  # vLLM's key: the daemon's or None; of a job that is about to begin
        self._jobs = {}  # job: {vLLM's key: the daemon's or None}, in the prompt's order
        self._hits = {}  # request: vLLM's keys
        self._held = collections.Counter()  # vLLM's key: holders
        self._loose, self._lost = set(), set()  # vLLM's keys: without a holder; without a payload
        # Daemon's keys, of jobs and reported: number of followers, and {(part, tier)} by the watch.
        self._followed, self._there = collections.Counter(), {}
        self._went = set()  # keys of these that left a tier before they were reported
        self._suspects, self._asked = collections.OrderedDict(), set()  # the daemon's keys
        self._events = []

    def __len__(self):
        """Returns the number of reported chunks."""
        return len(self._told)

    def hit(self, key, request):
        """Notes that the request found the chunk, which vLLM records now."""
        hits = self._hits.setdefault(request, set())
        if key not in hits:
            hits.add(key)
            self._held[key] += 1
        self._lost.discard(key)

    def prepare(self, key, request):
        """Notes that a store of it is about to begin. The request may be over by then."""
        self._prepared[key] = self._tellable(key, request)

    def begin(self, job, keys, request):
        """Notes that a job begins. keys: in the prompt's order."""
        self._jobs[job] = of_job = {}
        for key in keys:
            own = of_job[key] = (self._prepared.pop(key) if key in self._prepared
                                 else self._tellable(key, request))
            self._held[key] += 1
            self._lost.discard(key)
            self._follow(own)
        self._prepared.clear()

    def end(self, job, good):
        of_job = self._jobs.pop(job, {})
        for key, own in of_job.items():
            if good and own is not None and key not in self._lost:
                self._tell(own, key)
        for own in reversed(of_job.values()):  # ends of prefixes first
            if own in self._told:
                self._told.move_to_end(own)
        for key, own in of_job.items():
            self._let_go(key)
            self._unfollow(own)
        while len(self._told) > _MOST:
            self._gone(next(iter(self._told)))

    def over(self, request):
        for key in self._hits.pop(request, ()):
            self._let_go(key)

    def take(self):
        """Returns the OffloadingEvents since last time."""
        now = self._clock()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            while self._hear() and self._clock() - now < _LOOK_FOR_S:
                pass
        if self._suspects and not self._asked and now >= self._ask_at and self._breaker.allows():
            self._ask_at = now
            self._ask()
        for key in self._loose:
            if key not in self._held:
                self._events.append(OffloadingEvent([key], Medium.CPU, removed=True,
                                                    metadata_only=True))
        self._loose.clear()
        events, self._events = self._events, []
        return events

    def close(self):
        self._watch.close()

    def _tell(self, own, key):
        if own in self._told:
            return
        self._told[own] = key
        self._held[key] += 1
        self._follow(own)
        if own in self._went:
            self._suspects[own] = None
        self._events.append(OffloadingEvent([key], Medium.CPU, removed=False,
                                            removal_expected=True))

    def _gone(self, own):
        key = self._told.pop(own, None)
        if key is None:
            return
        self._events.append(OffloadingEvent([key], Medium.CPU, removed=True))
        self._held[key] -= 1
        if self._held[key]:
            self._lost.add(key)  # vLLM releases it with the event
        else:
            del self._held[key]
        self._unfollow(own)

    def _let_go(self, key):
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
            if key not in self._lost:
                self._loose.add(key)
            self._lost.discard(key)

    def _follow(self, own):
        if own is not None:
            self._followed[own] += 1
            self._there.setdefault(own, set())

    def _unfollow(self, own):
        if own is None:
            return
        self._followed[own] -= 1
        if not self._followed[own]:
            del self._followed[own], self._there[own]
            self._went.discard(own)

    def _hear(self):
        """Polls the watch. Returns whether there may be more."""
        try:
            news = self._watch.next(timeout=0)
        except errors.KvkeepError as mistake:  # what went meanwhile is reported when it is back
            if not isinstance(mistake, errors.Unavailable) and str(mistake) != self._refused:
                self._refused = str(mistake)
                logger.warning("kvkeep: events: the daemon does not say which chunks go: %s",
                               mistake)
            return False
        if news is None:
            return False
        if news.begins != Begin.GOES_ON:
            for places in self._there.values():
                places.clear()
        for event in news.events:
            places = self._there.get(event.key)
            if places is None:
                continue
            if event.stored:
                places.add((event.part, event.tier))
                continue
            places.discard((event.part, event.tier))
            if event.key in self._told:
                self._suspect(event.key)
            else:
                self._went.add(event.key)
        if news.snapshot_end:
            for own in self._told:
                self._suspect(own)
        return True

    def _suspect(self, own):
        """Notes a reported chunk that is gone by the watch's account, so that it is looked up."""
        parts = {part for part, _ in self._there.get(own, ())}
        if own in self._told and len(parts) < self._ns.parts:
            self._suspects[own] = None

    def _ask(self):
        most = max(1, _CHUNKS_AT_ONCE // self._ns.parts)
        keys = [self._suspects.popitem(last=False)[0]
                for _ in range(min(len(self._suspects), most))]
        asked = self._asked = set(keys)

        def ended(found, mistake):
            error = mistake if mistake is not None else found.error
            self._breaker.heard(error)
            if error is not None:
                self._ask_at = self._clock() + _AGAIN_S
            if self._asked is not asked:
                return  # a reset came in between
            self._asked = set()
            for at, key in enumerate(keys):
                if error is not None:
                    self._suspects[key] = None
                elif not all(found.presence[at * found.parts:(at + 1) * found.parts]):
                    self._gone(key)

        self._completions.start(calls.lookup(self._ns, keys, timeout=self._timeout_s), ended)
