"""From what was played and counted to figures, and what is said of them. Pure functions.

Chunks that came from beyond the node are counted by the client. Whether a peer or G4 had those of a
request is divided as the daemon's own counts of reads are, in samples around that request.
"""

import statistics

from counters import bin_of
from figures import bytes_text, table
from rounds import TOKENS_PER_BLOCK

SOURCES = {"g2": "own G2", "g3": "own G3", "peer": "peer", "g4": "G4", "recomputed": "recomputed"}
OF_CLIENT = ("asked", "g2", "g3", "beyond", "recomputed", "stored", "got", "wrong_chunks",
             "wrong_bytes", "missed_leased", "late")


def peer_share(counts):
    """The share of images from beyond the node that a peer served, or None if there was none."""
    peer = max(0, counts["peer_reads_total"] - counts["peer_unserved_reads_total"]
               - counts["peer_cut_reads_total"])
    g4 = max(0, counts["g4_source_reads_total"] - counts["g4_source_failed_reads_total"])
    return peer / (peer + g4) if peer + g4 else None


def sources_of(played, sampled, seconds, bins):
    """Returns a list of {source: chunks} a bin, of one node's requests."""
    out = [dict.fromkeys(SOURCES, 0) for _ in range(bins)]
    usual = peer_share(sampled.totals()) or 0
    for one in played:
        at = out[bin_of(one["ended_s"], seconds, bins)]
        for name in ("g2", "g3", "recomputed"):
            at[name] += one[name]
        if one["beyond"]:
            share = peer_share(sampled.around(one["began_s"], one["ended_s"]))
            peer = round(one["beyond"] * (usual if share is None else share))
            at["peer"] += peer
            at["g4"] += one["beyond"] - peer
    return out


def ttft(played, tokens_per_s):
    """The seconds that prompts' hits saved. computed_s: what their tokens take to compute at that
    speed; waited_s: what all lookups and gets took, those without a hit included."""
    computed = sum(one["hits"] for one in played) * TOKENS_PER_BLOCK / tokens_per_s
    waited = sum(one["lookup_s"] + one["get_s"] for one in played)
    each = [one["hits"] * TOKENS_PER_BLOCK / tokens_per_s - one["lookup_s"] - one["get_s"]
            for one in played if one["hits"]]
    return {"computed_s": computed, "waited_s": waited, "saved_s": computed - waited,
            "saved_s_of_a_hit_median": statistics.median(each) if each else 0,
            "requests_with_hits": len(each)}


def _totals(played):
    return {name: sum(one[name] for one in played) for name in OF_CLIENT}


def document(settings, requests, answer, sampled, moved, faults):
    """The whole report. answer: what the load said; sampled: {node: Sampled}; moved: {(from, to):
    bytes}, empty where no relay saw them; faults: [(seconds, text)] as they were done."""
    seconds = max(settings["seconds"], answer["seconds"])
    nodes = {}
    for node, counted in sampled.items():
        played = [one for one in answer["played"] if requests[one["request"]].node == node]
        over_time = sources_of(played, counted, seconds, settings["bins"])
        nodes[node] = {
            "requests": len(played), **_totals(played),
            "sources": {name: sum(one[name] for one in over_time) for name in SOURCES},
            "sources_over_time": over_time, "counts": counted.totals(),
            "counts_over_time": counted.in_bins(seconds, settings["bins"]),
            "ttft": ttft(played, settings["prefill_tokens_per_second"])}
    moves = [one for one in answer["played"] if requests[one["request"]].moved]
    return {
        "settings": settings, "seconds": seconds, "requests": len(answer["played"]),
        "not_played": answer["not_played"], "hung": answer["hung"],
        "failures": answer["failures"], **_totals(answer["played"]),
        "sources": {name: sum(one["sources"][name] for one in nodes.values()) for name in SOURCES},
        "moved_rounds": {"requests": len(moves), **{
            name: sum(one[name] for one in moves)
            for name in ("asked", "g2", "g3", "beyond", "recomputed")}},
        "ttft": ttft(answer["played"], settings["prefill_tokens_per_second"]),
        "moved_bytes": {f"{one} to {other}": size for (one, other), size in moved.items()},
        "faults": [{"at_s": at_s, "what": what} for at_s, what in faults],
        "errors": _errors(answer["played"]), "nodes": nodes}


def _errors(played):
    counts = {}
    for one in played:
        for error in one["errors"]:
            counts[error] = counts.get(error, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:10])


def problems(said):
    """What must not be, as texts; none if all is well."""
    found = []
    if said["wrong_bytes"]:
        found.append(f"{said['wrong_bytes']} wrong bytes, in {said['wrong_chunks']} chunks")
    if said["late"] or said["hung"]:
        found.append(f"{said['late'] + said['hung']} calls did not end by their deadlines, "
                     f"{said['hung']} of them not at all")
    if said["failures"]:
        found.append("; ".join(said["failures"]))
    if sum(said["sources"].values()) != said["asked"]:
        found.append(f"the sources have {sum(said['sources'].values())} chunks of "
                     f"{said['asked']} asked for")
    return found


def _share(part, whole):
    return f"{part} ({100 * part / max(1, whole):.1f} %)"


def _rows_of_sources(said):
    rows = [["chunks", *(f"node {node}" for node in said["nodes"]), "all"]]
    rows.append(["asked for", *(str(one["asked"]) for one in said["nodes"].values()),
                 str(said["asked"])])
    for name, text in SOURCES.items():
        rows.append([text, *(_share(one["sources"][name], one["asked"])
                             for one in said["nodes"].values()),
                     _share(said["sources"][name], said["asked"])])
    counts = [one["counts"] for one in said["nodes"].values()]
    for name, text in (('g4_declined_searches_total{reason="cost"}', "searches declined: cost"),
                       ('g4_declined_searches_total{reason="few"}', "searches declined: few")):
        numbers = [one[name] for one in counts]
        rows.append([text, *map(str, numbers), str(sum(numbers))])
    rows.append(["TTFT saved, s", *(f"{one['ttft']['saved_s']:.1f}"
                                    for one in said["nodes"].values()),
                 f"{said['ttft']['saved_s']:.1f}"])
    return rows


def _rows_of_bytes(said):
    rows = [["bytes", *(f"node {node}" for node in said["nodes"])]]
    for text, name in (("read from peers", "peer_read_bytes_total"),
                       ("served to peers", "peer_served_bytes_total"),
                       ("read from G4", "g4_source_read_bytes_total"),
                       ("written to G4", "g4_source_written_bytes_total")):
        rows.append([text, *(bytes_text(one["counts"][name]) for one in said["nodes"].values())])
    return rows


def _rows_of_wire(said):
    """What the relay passed on, protocols' own bytes included."""
    ends = [*said["nodes"], "g4"]
    return [["on the wire", *(f"to {end}" for end in ends)],
            *([f"from {end}", *(bytes_text(said["moved_bytes"].get(f"{end} to {other}", 0))
                                for other in ends)] for end in ends)]


def _sentences(said):
    ttft_s, moved, settings = said["ttft"], said["moved_rounds"], said["settings"]
    saw = moved["g2"] + moved["g3"] + moved["beyond"]
    yield (f"{said['requests']} requests of {settings['trace']} in {said['seconds']:.0f} s, "
           f"{said['not_played']} not begun; {settings['network']}, G4: {settings['g4']}, "
           f"chunks of {bytes_text(settings['chunk_bytes'])}.")
    yield (f"A cache of all nodes that forgets nothing has {settings['best_hits']} hits, this one "
           f"had {said['asked'] - said['recomputed']}.")
    yield (f"{moved['requests']} rounds went to another node than the round before: "
           f"{_share(saw, moved['asked'])} of their chunks were found, {moved['beyond']} of these "
           "beyond the node.")
    yield (f"TTFT saved is computed: the tokens of {ttft_s['requests_with_hits']} requests with "
           f"hits take {ttft_s['computed_s']:.1f} s at {settings['prefill_tokens_per_second']:g} "
           f"tokens a second; all lookups and gets took {ttft_s['waited_s']:.1f} s, measured. A "
           f"request with hits saves {ttft_s['saved_s_of_a_hit_median']:.2f} s by the median.")
    yield (f"Compared: {bytes_text(said['got'] * settings['chunk_bytes'])}, "
           f"{said['wrong_bytes']} bytes wrong. Calls that did not end by their deadline: "
           f"{said['late'] + said['hung']}.")


def text(said):
    """For a terminal."""
    lines = [*_sentences(said), "", table(_rows_of_sources(said)), table(_rows_of_bytes(said)),
             table(_rows_of_wire(said))]
    lines += [f"{fault['at_s']:7.1f} s  {fault['what']}" for fault in said["faults"]]
    return "\n".join([*lines, *(f"FAILED: {one}" for one in problems(said)), ""])


def _markdown_table(rows):
    head, *rest = rows
    return "\n".join(["| " + " | ".join(row) + " |"
                      for row in (head, ["---"] * len(head), *rest)])


def markdown(said, picture):
    """The same as a page, with the picture of this file's name."""
    parts = ["# A fleet in the lab", "", *(f"- {one}" for one in _sentences(said))]
    parts += ["", f"![Chunks by source over time]({picture})", "",
              _markdown_table(_rows_of_sources(said)), "", _markdown_table(_rows_of_bytes(said)),
              "", _markdown_table(_rows_of_wire(said)), "", "Faults:", ""]
    parts += [f"- {fault['at_s']:.1f} s: {fault['what']}" for fault in said["faults"]] or ["- none"]
    parts += [f"- **failed**: {one}" for one in problems(said)]
    return "\n".join([*parts, ""])
