"""TensorRT-LLM: a rank's KV pages, copies between them and host memory, and that host memory.

Copies are work of the engine's own stream, so the driver orders them with the forwards: what is
loaded is there before the forward that reads it, and what is stored is copied before a later
forward can overwrite it.
"""

import collections
import ctypes
import mmap
import os
import secrets

from kvkeep.identity import canonical, digest_of

_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Driver:
    """Calls of the GPU's driver. A context of the rank's device is current on every thread that
    calls, as it is on the engine's."""

    def __init__(self, name="libcuda.so.1"):
        self._driver = ctypes.CDLL(name)

    def copy_in(self, address, host, nbytes, stream):
        """Copies from host memory, in the stream's order."""
        self._must("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(host),
                   ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def copy_out(self, host, address, nbytes, stream):
        """Copies to host memory, in the stream's order."""
        self._must("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(address),
                   ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def fence(self, stream):
        """Returns a fence for is_over, behind everything that the stream has been given."""
        event = ctypes.c_void_p()
        self._must("cuEventCreate", ctypes.byref(event), ctypes.c_uint(_NO_TIMING))
        self._must("cuEventRecord", event, ctypes.c_void_p(stream))
        return event

    def is_over(self, fence):
        """Returns whether the GPU has passed the fence, which ends with the first True."""
        code = self._driver.cuEventQuery(fence)
        if code == _NOT_READY:
            return False
        self._check("cuEventQuery", code)
        self._must("cuEventDestroy_v2", fence)
        return True

    def pin(self, address, nbytes):
        """Locks host memory, so that copies need no other and do not wait."""
        self._must("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(nbytes),
                   ctypes.c_uint(0))

    def unpin(self, address):
        """Undoes a pin, which must happen before the memory is freed."""
        self._must("cuMemHostUnregister", ctypes.c_void_p(address))

    def _must(self, function, *arguments):
        self._check(function, getattr(self._driver, function)(*arguments))

    @staticmethod
    def _check(function, code):
        if code != 0:
            raise RuntimeError(f"kvkeep: {function} of the GPU's driver: error {code}")


class Pages:
    """The pages of a KvCacheLayout. A chunk's part is one page of each layer group, region by
    region."""

    def __init__(self, layout):
        self.tokens_per_block = layout.tokens_per_block
        self._groups = [[(one.base, one.size, one.stride, one.num_slots) for one in regions]
                        for regions in map(_regions, layout.groups)]
        windows = [group.window_size for group in layout.groups if group.window_size is not None]
        if windows:
            raise ValueError(
                "kvkeep: the connector does not take layers with an attention window "
                f"({windows[0]} tokens): set kv_cache_config.max_attention_window to the longest "
                "sequence, or start without kv_connector_config")
        if [group.layer_group_id for group in layout.groups] != list(range(len(layout.groups))):
            raise ValueError("kvkeep: the KV cache's layer groups are not numbered from 0 on: "
                             "start without kv_connector_config")
        self.part_bytes = sum(size for group in self._groups for _, size, _, _ in group)
        if self.part_bytes == 0:
            raise ValueError("kvkeep: the KV cache's layout has no bytes: start without "
                             "kv_connector_config")
        self.form = digest_of(canonical([
            (str(getattr(layout, "dtype", None)), layout.tokens_per_block),
            [[(one.size, [(buffer.layer_id, buffer.role, buffer.expansion)
                          for buffer in one.buffers]) for one in regions]
             for regions in map(_regions, layout.groups)]]))

    @property
    def groups(self):
        """Returns the number of layer groups."""
        return len(self._groups)

    def has(self, pages):
        """Returns whether these are pages, one of each group."""
        return len(pages) == len(self._groups) and all(
            type(page) is int and all(0 <= page < slots for _, _, _, slots in group)
            for page, group in zip(pages, self._groups))

    def runs(self, pages):
        """Yields (address, bytes) of a part, in its order. Raises ValueError if there are no such
        pages."""
        if not self.has(pages):
            raise ValueError(f"kvkeep: there are no pages {pages} in the KV cache")
        for page, group in zip(pages, self._groups):
            for base, size, stride, _ in group:
                yield base + page * stride, size


def _regions(group):
    """Returns a layer group's regions, with those that some releases keep apart because every rank
    has the same bytes there."""
    return (*group.regions, *getattr(group, "replicated_regions", ()))


class Room:
    """Host memory in slots of equal size. address: of the first one."""

    def __init__(self, memory, begin, slot_bytes, slots):
        self._memory, self.slot_bytes = memory, slot_bytes
        self._first = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + begin
        self.free = collections.deque(range(slots))

    def at(self, slot, offset=0):
        """Returns the address of a byte of a slot."""
        return self._first + slot * self.slot_bytes + offset

    def take(self, most):
        """Returns that many slots, or as many as are free."""
        return [self.free.popleft() for _ in range(min(most, len(self.free)))]

    def give_back(self, slots):
        self.free.extend(slots)


def anonymous_room(nbytes, slot_bytes, driver):
    """Returns a pinned Room of this process."""
    slots = max(nbytes // slot_bytes, 1)
    memory = mmap.mmap(-1, slots * slot_bytes)
    room = Room(memory, 0, slot_bytes, slots)
    driver.pin(room.at(0), slots * slot_bytes)
    return room


# The head of shared memory: who made it, and for each rank the last step whose copies are over.
_TOKEN_BYTES, _STEPS = 16, 64
ATTACHED = 1  # a rank's step before its first one


def _head_bytes(ranks):
    return -(-(_STEPS + 8 * ranks) // mmap.PAGESIZE) * mmap.PAGESIZE


class Found(Room):
    """Verified chunks on their way to all ranks of one machine, made by the rank that finds them.

    A memfd, which every rank opens through the /proc of its maker, so it ends with its processes.
    """

    def __init__(self, nbytes, part_bytes, ranks):
        slot_bytes = part_bytes * ranks
        slots, head = max(nbytes // slot_bytes, 1), _head_bytes(ranks)
        self._fd = os.memfd_create("kvkeep-trtllm")
        os.ftruncate(self._fd, head + slots * slot_bytes)
        memory = mmap.mmap(self._fd, 0)
        memory[:_TOKEN_BYTES] = token = secrets.token_bytes(_TOKEN_BYTES)
        super().__init__(memory, head, slot_bytes, slots)
        self.part_bytes, self.ranks, self._sent = part_bytes, ranks, collections.deque()
        self.place = (os.getpid(), self._fd, token, part_bytes, ranks)

    def attached(self):
        """Returns whether all ranks can read it."""
        return all(self._steps())

    def sent(self, slots, step):
        """Notes that all ranks copy these slots in that step."""
        self._sent.append((step, slots))

    def reclaim(self):
        """Makes slots free that all ranks have copied."""
        done = min(self._steps())
        while self._sent and self._sent[0][0] <= done:
            self.give_back(self._sent.popleft()[1])

    def _steps(self):
        return [int.from_bytes(self._memory[at:at + 8], "little")
                for at in range(_STEPS, _STEPS + 8 * self.ranks, 8)]


class Attached:
    """A rank's view of Found. Raises OSError or ValueError if it cannot be had."""

    def __init__(self, place, part_bytes, part):
        pid, number, token, self.part_bytes, ranks = self.place = place
        if part_bytes != self.part_bytes or not 0 <= part < ranks:
            raise ValueError(f"rank {part} has chunks of {part_bytes} bytes, the rank that finds "
                             f"them {self.part_bytes}, of {ranks} ranks")
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        try:
            self._memory = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        if self._memory[:_TOKEN_BYTES] != token:
            raise ValueError("it is another's: the ranks are not in one PID namespace")
        head = _head_bytes(ranks)
        self._slots = (len(self._memory) - head) // (part_bytes * ranks)
        self._room = Room(self._memory, head, part_bytes * ranks, 0)
        self._part = part

    def pin(self, driver):
        driver.pin(self._room.at(0), self._slots * self._room.slot_bytes)

    def unpin(self, driver):
        driver.unpin(self._room.at(0))

    def at(self, slot):
        """Returns the address of this rank's part in a slot."""
        return self._room.at(slot, self._part * self.part_bytes)

    def tell(self, step):
        """Tells the finder that this rank's copies up to that step are over."""
        at = _STEPS + 8 * self._part
        ctypes.c_uint64.from_buffer(self._memory, at).value = step
