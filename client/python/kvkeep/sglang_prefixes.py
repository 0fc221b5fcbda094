"""Computes which prefixes an engine with several pools can take up again, without any calls.

An end is a number of pages. K and V, and pools of the policy "all pages", can be used up to every
end that they reach without a gap. A pool of "trailing pages" (Mamba states, sliding windows) needs
only the last few pages before an end, so it may have an end and lack a shorter one. An engine can
take up the ends that are good in all of its pools.
"""

from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolTransferResult

ALL_PAGES = None  # a window that reaches back to the first page


def window_of(transfer):
    """Returns how many pages before an end the pool must have: ALL_PAGES, or a number."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return ALL_PAGES
    if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
        return max(1, len(transfer.keys or ()))
    raise ValueError(f"kvkeep: a pool with the policy {transfer.hit_policy} is not kept")


def good_ends(there, window):
    """Returns the good ends of a pool that has the pages where `there` is true."""
    ends, run = [], 0  # run: pages without a gap before this end
    for end, one in enumerate(there, start=1):
        run = run + 1 if one else 0
        if run >= (end if window is ALL_PAGES else min(window, end)):
            ends.append(end)
    return ends


def restorable(pools, there_of):
    """Returns a PoolTransferResult. pools: (name, window), K and V first. there_of(name, pages)
    returns which of the first `pages` pages (None: of all) a pool has. Pools are asked in turn
    until no end is left."""
    ends, pages, longest = None, None, {}
    for name, window in pools:
        own = good_ends(there_of(name, pages), window)
        if own:
            longest[name] = own[-1]
        ends = own if ends is None else sorted(set(ends).intersection(own))
        if not ends:
            break
        pages = ends[-1] if pages is None else pages
    return PoolTransferResult(ends[-1] if ends else 0, longest, ends)
