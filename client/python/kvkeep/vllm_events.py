"""vLLM: what routers hear of the pool by the engine's own stream (the option events, "engine").

vLLM's publisher tells of a chunk, with its tokens, when this engine has stored or loaded it, and of
its end when the daemon has it no more. The payload is vLLM's own (offloading/events.py), its medium
"CPU". Of chunks that tokens alone do not find nothing is told. That a chunk went is heard by a
Watch and made certain by a lookup; both are asked in steps, so an idle engine tells of it later.
At most 16,384 chunks are told of at a time; then the oldest is told of as gone.

Of the scheduler's thread; no call waits.
"""

import collections
import time

from vllm.v1.kv_offload.base import Medium, OffloadingEvent

from kvkeep import calls, errors
from kvkeep.watch import Begin, Watch

_MOST = 16_384
_LOOK_S = 0.05  # how often the watch is asked
_KEYS_AT_ONCE = 1024  # of a lookup


class EngineEvents:
    """ns: of the group that is told of. completions: of its client. tellable(key, request): the
    key in the daemon of a key of vLLM's, or None where nothing is to be told."""

    def __init__(self, ns, completions, tellable, timeout_s, clock=time.monotonic):
        self._ns, self._completions, self._tellable = ns, completions, tellable
        self._timeout_s, self._clock = timeout_s, clock
        self._watch, self._looked = Watch(ns), float("-inf")
        self._jobs = {}  # job: {vLLM's key: the daemon's or None}
        self._hits = {}  # request: vLLM's keys
        self._told = collections.OrderedDict()  # the daemon's key: vLLM's
        self._of_vllm = set()  # vLLM's keys that are told of
        self._suspects, self._asked = collections.OrderedDict(), set()  # the daemon's keys
        self._events = []

    def __len__(self):
        """Chunks that are told of."""
        return len(self._told)

    def hit(self, key, request):
        """vLLM has taken it down."""
        self._hits.setdefault(request, set()).add(key)

    def begin(self, job, keys, request):
        self._jobs[job] = {key: self._tellable(key, request) for key in keys}

    def end(self, job, good):
        for key, own in self._jobs.pop(job, {}).items():
            if good and own is not None:
                self._tell(own, key)
            else:
                self._forget(key)

    def over(self, request):
        for key in self._hits.pop(request, ()):
            self._forget(key)

    def reset(self):
        """vLLM has forgotten all, and tells that."""
        for kept in (self._jobs, self._hits, self._told, self._of_vllm, self._suspects, self._asked,
                     self._events):
            kept.clear()

    def take(self):
        """The OffloadingEvents since last time."""
        now = self._clock()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._hear()
        if self._suspects and not self._asked:
            self._ask()
        events, self._events = self._events, []
        return events

    def close(self):
        self._watch.close()

    def _tell(self, own, key):
        if own in self._told:
            return
        self._told[own] = key
        self._of_vllm.add(key)
        self._suspects[own] = None  # it may have gone before this, unheard
        self._events.append(OffloadingEvent([key], Medium.CPU, removed=False))
        while len(self._told) > _MOST:
            self._gone(next(iter(self._told)))

    def _gone(self, own):
        key = self._told.pop(own, None)
        if key is not None:
            self._of_vllm.discard(key)
            self._events.append(OffloadingEvent([key], Medium.CPU, removed=True))

    def _forget(self, key):
        """What vLLM has taken down of it, unless it is told of."""
        if key not in self._of_vllm:
            self._events.append(OffloadingEvent([key], Medium.CPU, removed=True,
                                                metadata_only=True))

    def _hear(self):
        try:
            news = self._watch.next(timeout=0)
        except errors.KvkeepError:
            return  # away: it is told anew when it is back
        if news is None:
            return
        if news.begins != Begin.GOES_ON:  # what went before is not told
            self._suspects.update(dict.fromkeys(self._told))
        for event in news.events:
            if not event.stored and event.key in self._told:
                self._suspects[event.key] = None

    def _ask(self):
        keys = [self._suspects.popitem(last=False)[0]
                for _ in range(min(len(self._suspects), _KEYS_AT_ONCE))]
        self._asked.update(keys)

        def ended(found, mistake):
            known = mistake is None and found.error is None
            for at, key in enumerate(keys):
                if key not in self._asked:
                    continue  # a reset came between
                if not known:
                    self._suspects[key] = None
                elif not all(found.presence[at * found.parts:(at + 1) * found.parts]):
                    self._gone(key)
            self._asked.clear()

        self._completions.start(calls.lookup(self._ns, keys, timeout=self._timeout_s), ended)
