"""vLLM's jobs on GPU memory, cut into calls of which few are under way at a time.

A window is as many parts of a job's chunks as one call names. The limit keeps their requests within
the socket of a daemon that hangs, where the thread that starts a call would wait, and keeps a get
within the room that a daemon has. The other windows wait here, loads before stores, each kind in
order. A get that finds no room at the daemon is tried again in halves, for a second. Nothing begins
while a call that ended has no answer, as its request may still lie in the socket. For one thread
only.
"""

import collections
import dataclasses
import functools
import time

from vllm.logger import init_logger

from kvkeep import errors, gpu

logger = init_logger(__name__)

# Limits of a window, and of all windows under way, in bytes of requests and of chunks. A socket has
# 208 KiB, of which a message takes a few hundred bytes more than its content.
_REQUEST, _REQUESTS_UNDER_WAY = 48 << 10, 96 << 10
_OF_A_MESSAGE, _OF_A_PART, _OF_A_RUN = 2048, 128, 24
MOST_RUNS = (192 << 10) // _OF_A_RUN  # of one part, which may be under way alone
_BYTES, _BYTES_UNDER_WAY = 256 << 20, 512 << 20
# Tries of a get that finds no room at the daemon, and for how long.
_AGAIN_S, _NO_ROOM_S = 0.005, 1.0
# A window does not begin with less than this part of its job's time left: it would only time out.
_LEAST_TIME = 0.1
_HUNG_S = 1.0  # how long windows wait while the daemon does not answer


@dataclasses.dataclass
class Job:
    """begin, until: by time.monotonic(). What has not begun by `until` is given up."""

    job_id: int
    is_store: bool
    moved: int  # bytes in all
    begin: float
    until: float
    windows: int = 0  # windows that are not over
    good: bool = True
    only_here: bool = False  # a store whose chunks only this engine will find
    free_at: float = 0.0  # of a store: when no unanswered put of it counts any more
    uses: list = dataclasses.field(default_factory=list)  # GpuUse of unanswered calls

    @property
    def in_use(self):
        return any(use.in_use for use in self.uses)


@dataclasses.dataclass
class Window:
    """parts: PartOfChunks with GpuRuns."""

    job: Job
    ns: object
    parts: list
    nbytes: int
    request: int = _OF_A_MESSAGE  # its bytes
    use: gpu.GpuUse = None  # of a call that has begun
    until: float = 0.0  # of a call that has begun: its deadline, at the latest
    ended: bool = False
    try_after: float = 0.0  # the daemon had no room
    try_until: float = 0.0


def _request(part):
    return _OF_A_PART + _OF_A_RUN * len(part.payload) + len(part.metadata)


def cut(job, groups):
    """Returns the windows of a job, from PartsOfGroup."""
    windows = []
    for of in groups:
        window = None
        for one in of.parts:
            if window is None or (window.request + _request(one) > _REQUEST or
                                  window.nbytes + of.nbytes > _BYTES):
                window = Window(job, of.ns, [], 0)
                windows.append(window)
            window.parts.append(one)
            window.nbytes += of.nbytes
            window.request += _request(one)
    return windows


class Windows:
    """make_call(window, timeout) returns a put or a get of it, and its use. failed(error) is called
    for each failed call, over(job) once, when its last window is over."""

    def __init__(self, completions, make_call, failed, over):
        self._completions, self._make_call = completions, make_call
        self._failed, self._over = failed, over
        self._loads, self._stores = collections.deque(), collections.deque()
        self.requests = self.nbytes = 0  # under way
        self._unanswered, self._hung_since = [], None  # windows whose calls have ended

    def __len__(self):
        """How many wait."""
        return len(self._loads) + len(self._stores)

    def add(self, job, windows):
        job.windows = len(windows)
        if not windows:  # another rank has stored all of it
            self._over(job)
        (self._stores if job.is_store else self._loads).extend(windows)
        self.pump()

    @property
    def is_hung(self):
        """Returns whether a call that ended waits for its answer."""
        self._hear_late_answers()
        return bool(self._unanswered)

    def pump(self):
        """Begins windows while there is room, and gives up overdue ones."""
        self._hear_late_answers()
        while self._loads and self._begin_first(self._loads):
            pass
        while self._stores and not self._loads and self._begin_first(self._stores):
            pass
        while self._stores and self._is_overdue(self._stores[0].job):
            self._ends(self._stores.popleft(), good=False)

    def _hear_late_answers(self):
        heard = [window for window in self._unanswered if not window.use.is_awaited]
        for window in heard:
            self._unanswered.remove(window)
            self._give_back(window)
        if not self._unanswered:
            self._hung_since = None
        elif time.monotonic() - self._hung_since >= _HUNG_S:
            self.give_up()

    def give_up(self):
        """Fails all jobs that wait."""
        for waiting in (self._loads, self._stores):
            while waiting:
                self._ends(waiting.popleft(), good=False)

    def _begin_first(self, waiting):
        window, now = waiting[0], time.monotonic()
        job, left = window.job, window.job.until - now
        if self._is_overdue(job) or not (job.good or job.is_store):
            self._ends(waiting.popleft(), good=False)
            return True
        if self._unanswered or window.try_after > now or not self._fits(window):
            return False
        waiting.popleft()
        self.requests += window.request
        self.nbytes += window.nbytes
        ended = functools.partial(self._ended, window)
        try:
            self._completions.start(self._make_call(window, left), ended)
        except Exception as mistake:  # pylint: disable=broad-except  # ours; nothing was sent
            logger.exception("kvkeep: job %s", job.job_id)
            ended(None, mistake)
        # The call's own time began before this.
        window.until = time.monotonic() + left
        return True

    @staticmethod
    def _is_overdue(job):
        return job.until - time.monotonic() <= _LEAST_TIME * (job.until - job.begin)

    def _fits(self, window):
        return not self.requests or (self.requests + window.request <= _REQUESTS_UNDER_WAY and
                                     self.nbytes + window.nbytes <= _BYTES_UNDER_WAY)

    def _give_back(self, window):
        self.requests -= window.request
        self.nbytes -= window.nbytes

    def _ended(self, window, result, mistake):
        if window.ended:
            return
        window.ended, job = True, window.job
        error = mistake if mistake is not None else result.error
        if error is not None:
            self._failed(error)
        if window.use is not None and window.use.is_awaited:
            self._unanswered.append(window)
            self._hung_since = self._hung_since or time.monotonic()
        else:
            self._give_back(window)
        if window.use is not None and window.use.in_use:
            job.uses.append(window.use)
            job.free_at = max(job.free_at, window.until)
        elif (not job.is_store and isinstance(error, errors.ResourceExhausted)
              and self._try_again(window)):
            return
        self._ends(window, error is None and all(result.good))

    def _try_again(self, window):
        """Tries again in halves, while time is left."""
        now = time.monotonic()
        window.try_until = window.try_until or now + _NO_ROOM_S
        if now >= window.try_until:
            return False
        window.try_after, window.ended, half = now + _AGAIN_S, False, len(window.parts) // 2
        if half:
            each = window.nbytes // len(window.parts)
            behind = dataclasses.replace(window, parts=window.parts[half:])
            window.parts = window.parts[:half]
            for one in (behind, window):
                one.nbytes = each * len(one.parts)
                one.request = _OF_A_MESSAGE + sum(map(_request, one.parts))
            window.job.windows += 1
            self._loads.appendleft(behind)
        self._loads.appendleft(window)
        return True

    def _ends(self, window, good):
        job = window.job
        job.good = job.good and good
        job.windows -= 1
        if job.windows == 0:
            self._over(job)
