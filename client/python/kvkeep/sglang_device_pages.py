"""SGLang: pages of an engine's own KV pool as chunks: their bytes, leases, copies.

K and V of a page are two parts of its chunk, `[layer][token][head][dim]`. These bytes and their
namespace (sglang_pages.py) are those of HiCache's host pools with the layout page_first_direct, so
engines with HiCache share with engines with the linker. A layer of a page is one run of memory in
that layer's tensor.

Reading makes no call: it copies leased pages out of the daemon's memory, which is mapped here. The
copy is good only if the lease still holds afterwards. With the last layer, each chunk's header and
checksums are compared too. Failures of the daemon are KvkeepErrors here.
"""

from kvkeep import calls, errors
from kvkeep.memory import Located, Pointer, skip
from kvkeep.sglang_pages import KV, PoolPages

# Keys of one lookup; of a longer prompt only so many are found. They fit into one packet: if a
# hanging daemon's socket took only some of several packets, the session and its leases would end.
_CHUNKS_AT_ONCE = 3900
_READY_S = 0.001  # for chunks that the daemon is verifying


class Planes:
    """The places of the layers' K and V of an MHATokenToKVPool in host memory."""

    def __init__(self, pool):
        self.layers, self._page_tokens = pool.layer_num, pool.page_size
        self._rows = min(tensor.shape[0] for tensor in (*pool.k_buffer, *pool.v_buffer))
        self._kept = (tuple(pool.k_buffer), tuple(pool.v_buffer))
        self._tensors = [[(tensor.data_ptr(), tensor.stride(0) * tensor.element_size())
                          for tensor in plane] for plane in self._kept]
        # Bytes of one layer of a page, by plane.
        self.run_bytes = [plane[0][1] * self._page_tokens for plane in self._tensors]
        self.page_bytes = [nbytes * self.layers for nbytes in self.run_bytes]

    def rows(self, indices):
        """Returns the first row of each page. Raises ValueError unless these are whole pages of the
        pool."""
        step = self._page_tokens
        firsts, lasts = indices[::step].tolist(), indices[step - 1::step].tolist()
        if len(indices) % step or [one + step - 1 for one in firsts] != lasts or any(
                one % step or not 0 <= one <= self._rows - step for one in firsts):
            raise ValueError(f"kvkeep: {len(indices)} rows are not whole pages of the KV pool")
        return firsts

    def run(self, plane, layer, row):
        address, stride = self._tensors[plane][layer]
        return Pointer(address + row * stride, self.run_bytes[plane])


class _AsHostPool:
    """Describes these pages as HiCache's host pool, as their namespace does."""

    layout, storage_format_tag = "page_first_direct", None

    def __init__(self, pool, planes):
        self.page_size, self.dtype = pool.page_size, pool.store_dtype
        self._sizes = planes.page_bytes

    def get_page_buffer_meta(self, indices):
        """Returns the sizes of one page's pieces; their addresses are not used."""
        del indices
        return [0] * len(self._sizes), self._sizes


class Lost(Exception):
    """Leased bytes turned out to be bad. damaged: keys whose chunks are not what was stored; they
    would be found and lost again."""

    def __init__(self, why, damaged=()):
        super().__init__(why)
        self.damaged = damaged


class DevicePages(PoolPages):
    """link.options: LinkerOptions. lookups: the Breaker of lookups; that of `link` is for puts,
    which have far more time. Thread-safe, with each lease on one thread at a time."""

    def __init__(self, link, config, pool, lookups):
        self.planes, self._lookups = Planes(pool), lookups
        super().__init__(link, config, KV, _AsHostPool(pool, self.planes), pool.page_size)
        self._nowhere = Located(list(map(skip, self.planes.page_bytes)) *
                                (_CHUNKS_AT_ONCE // len(self._parts)))

    def lease(self, keys, timeout):
        """Returns (lease, how many leading pages can be read now). The lease may be None. Makes
        chunks that only NVMe has come to DRAM. Calls the daemon."""
        parts = len(self._parts)
        keys = keys[:_CHUNKS_AT_ONCE // parts]
        found = self._namespace.lookup(keys, parts=self._parts, lease="leading", timeout=timeout)
        self._lookups.heard(found.error)
        if found.lease is None:
            return None, 0
        there = found.presence[:found.leased_keys * parts]
        in_dram = next((at for at, one in enumerate(there) if not one & found.IN_G2), len(there))
        pages = self._readable(found.lease, keys[:in_dram // parts])
        if pages == 0:
            found.lease.release()
            return None, 0
        found.lease.shrink(pages)
        return found.lease, pages

    def holds(self, lease, keys):
        """Returns whether a lease on these keys, which are its first ones, holds now. Makes no
        call."""
        return self._readable(lease, keys[:1]) == 1

    def read_layer(self, lease, keys, rows, layer):
        """Copies a layer of leased pages to these rows. If it raises Lost, the rows may hold
        anything. Does not wait."""
        last = layer == self.planes.layers - 1
        into = []
        for row in rows:
            for plane, nbytes in enumerate(self.planes.run_bytes):
                runs = [skip(layer * nbytes)] if layer else []
                runs.append(self.planes.run(plane, layer, row))
                if not last:
                    runs.append(skip((self.planes.layers - 1 - layer) * nbytes))
                into.append(runs)
        got = self._namespace.get(keys, into, parts=self._parts, lease=lease, verify=last,
                                  timeout=self._link.options.timeout_s)
        whole = self._good(got)
        if got.error is None and all(whole):
            return
        parts = len(self._parts)
        damaged = {keys[at // parts] for at, (status, good) in
                   enumerate(zip(got.statuses, whole))
                   if status == calls.GetStatus.CORRUPT or
                   (status == calls.GetStatus.HIT and not good)}
        raise Lost(f"leased pages could not be read: {got.error or set(got.statuses)}", damaged)

    def forget(self, keys, timeout):
        """Makes the daemon delete them, for all engines."""
        self._namespace.delete(list(keys), timeout=timeout)

    def store(self, keys, rows, parent, timeout, private=False):
        """Stores these pages; returns whether all are kept now. parent: the previous key, or None.
        Does not copy pages that are there already, as after a load. private: as for a put. Waits
        for the daemon."""
        there = self._there(keys, timeout)
        if there is None:
            return False
        chunks = [calls.Chunk(key, [self.planes.run(plane, layer, row)
                                    for layer in range(self.planes.layers)],
                              part, parent)
                  for at, (key, parent, row) in enumerate(zip(keys, [parent, *keys[:-1]], rows))
                  for plane, part in enumerate(self._parts) if at not in there]
        if not chunks:
            return True
        stored = self._namespace.put(chunks, no_g3=private, timeout=timeout)
        self._link.breaker.heard(stored.error)
        return all(stored.good)

    def _there(self, keys, timeout):
        """Returns which of these pages the daemon has, by number, or None if it does not answer."""
        parts = len(self._parts)
        found = self._namespace.lookup(keys, parts=self._parts, timeout=timeout)
        self._link.breaker.heard(found.error)
        if found.error is not None:
            return None
        kept = [one & (found.IN_G2 | found.IN_G3) for one in found.presence]
        return {at for at in range(len(keys)) if all(kept[at * parts:(at + 1) * parts])}

    def _readable(self, lease, keys):
        """Returns how many leading pages of a lease can be read at once. A page that the daemon
        has not verified since its start cannot. Each chunk is read to nowhere, which touches no
        byte."""
        into = self._nowhere.first(len(keys) * len(self._parts))
        try:
            got = self._namespace.get(keys, into, parts=self._parts, lease=lease, verify=False,
                                      timeout=_READY_S)
        except errors.KvkeepError:  # it is over
            return 0
        good = self._good(got)
        bad = next((at for at, one in enumerate(good) if not one), len(good))
        return bad // len(self._parts)

    def _good(self, got):
        """Returns whether each chunk is good. One of another size is not ours, whatever its key
        says."""
        return [one and nbytes == self.planes.page_bytes[at % len(self._parts)]
                for at, (one, nbytes) in enumerate(zip(got.good, got.nbytes))]
