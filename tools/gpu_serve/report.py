"""What a run measured, in words and as a picture."""

from gpu_serve import curves
from gpu_serve.shapes import SHAPES

GIB = 1 << 30
COLORS = {"recompute": "#9aa0a6", "gpu": "#c9a227", "kvkeep-g2": "#0b5fa5", "kvkeep-g3": "#74b3e6"}
_LENGTHS = {"recompute": "computed_s", "kvkeep-g2": "g2_s", "kvkeep-g3": "nvme_s"}  # as the arms
_HONEST = """\
The engine is {tool}'s own, of PyTorch alone: random weights, no CUDA graphs, attention by
scaled_dot_product_attention over gathered pages. All arms have the same engine, so what counts is
how they compare. KV is found in blocks of {block} tokens by the arm gpu, in chunks of {chunk} by
kvkeep's. A user asks every {gap:g} s, or after the answer if that is later, {rounds} times after a
first question that is not measured. Users of all arms hear the first arm's answers."""


def _machine(document):
    one = next(iter(document["facts"].values()), {})
    words = [f"{one.get('device', '?')}", f"torch {one.get('torch', '?')}"]
    words += [f"CUDA {one['cuda']}"] if "cuda" in one else [f"{one.get('threads')} threads"]
    return ", ".join(words)


def _facts(document):
    out = [f"- {name}: {value}." for name, value in document["machine"].items()]
    for arm, facts in document["facts"].items():
        words = [f"energy: {facts['energy']}"]
        if facts.get("path"):
            words.append(f"G2 of {facts['g2_bytes'] / GIB:.3g} GiB, G3 of "
                         f"{facts['g3_bytes'] / GIB:.3g} GiB, reached by {facts['path']}")
        out.append(f"- {arm}: {'; '.join(words)}.")
    return out


def _users_table(document):
    out = ["| arm | users | TTFT p50 s | p90 s | p99 s | ITL s | TPS | J a token | found | "
           "recalled tokens | chunks from NVMe | lost | refused | computed tokens | "
           "answers as in the first arm |", "|---" * 15 + "|"]
    for row in document["rows"]:
        same = document["differences"].get(str(row["users"]), {}).get(row["arm"])
        words = "the first" if same is None else f"{same['equal']} of {same['asked']}"
        if same and "largest_gap" in same:
            words += f", else a gap of at most {same['largest_gap']:.3g}"
        joules = row["joules_per_token"]
        out.append(f"| {row['arm']} | {row['users']} | " + " | ".join(
            f"{row.get(name, 0):.3f}" for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s",
                                                   "itl_s"))
                   + f" | {row.get('tps', 0):.1f} | {'-' if joules is None else f'{joules:.2f}'} | "
                   f"{row['hit_ratio']:.1%} | {row['recalled_tokens']} | "
                   + " | ".join(str(row.get(name, "-")) for name in (
                       "from_g3_chunks", "lost_chunks", "refused_chunks")) + " | "
                   f"{row['prefilled_tokens']} | {words} |")
    return out


def _lengths_table(document, token_bytes):
    out = ["", "| tokens | computed s | from G2 s | from NVMe s | GB/s of G2 | of NVMe | "
           "first token | recalled bytes |", "|---" * 8 + "|"]
    for row in sorted(document["lengths"], key=lambda one: one["tokens"]):
        rates = [f"{row[f'{tier}_recalled'] * token_bytes / row[f'{tier}_s'] / 1e9:.2f}"
                 for tier in ("g2", "nvme")]
        same = "equal" if row["equal"] else f"differs, the gap is {row['gap']:.3g}"
        out.append(f"| {row['tokens']} | {row['computed_s']:.4f} | {row['g2_s']:.4f} | "
                   f"{row['nvme_s']:.4f} | {' | '.join(rates)} | {same} | "
                   f"{'equal' if row['same_kv'] else 'DIFFERS'} |")
    return [*out, "", "GB/s are of all of the time to the first token, the rest of the prompt and "
            "the lookup included."]


def markdown(document, tool="tools/gpu-serve"):
    settings = document["settings"]
    shape = SHAPES[settings["shape"]]
    out = [f"# {tool}: {settings['shape']} on {_machine(document)}", "",
           _HONEST.format(tool=tool, gap=settings["gap_s"], rounds=settings["load"]["rounds"] - 1,
                          block=shape.block_tokens, chunk=shape.chunk_tokens),
           "", *_facts(document)]
    if settings["check"]:
        out.append("- Batch-invariant (--check): slower; answers must be equal bit by bit.")
    out += [f"- Settings: {', '.join(f'{name} {value}' for name, value in settings.items())}.", ""]
    if document["rows"]:
        out += _users_table(document)
    if document["lengths"]:
        out += _lengths_table(document, shape.token_bytes)
    return "\n".join(out) + "\n"


def _over_users(document, measure):
    found = {}
    for row in document["rows"]:
        if row.get(measure) is not None:
            found.setdefault(row["arm"], []).append((row["users"], row[measure]))
    return {arm: sorted(curve) for arm, curve in found.items()}


def picture(document, bound_s):
    """TTFT, TPS and joules a token over users by arm; computed beside recalled over lengths."""
    ttft = _over_users(document, "ttft_p90_s") | {
        f"{arm}*": curve for arm, curve in _over_users(document, "ttft_p50_s").items()}
    users = {"x_name": "users"}
    lengths = sorted(document["lengths"], key=lambda one: one["tokens"])
    return curves.picture(COLORS, [
        ("Time to the first token, s: p90, and p50 dashed; red: the bound", ttft,
         {**users, "bound": bound_s}),
        ("Answer tokens a second", _over_users(document, "tps"), {**users, "logarithmic": False}),
        ("Joules an answer token", _over_users(document, "joules_per_token"),
         {**users, "logarithmic": False}),
        ("Time to the first token of one prompt, s: computed, recalled from G2, from NVMe",
         {name: [(row["tokens"], row[measure]) for row in lengths]
          for name, measure in _LENGTHS.items()},
         {"x_name": "tokens of the prompt", "doubling": True})])


def unequal(document):
    """In words, each comparison that is not of equal tokens."""
    out = [f"{arm}, {users} users: {one['asked'] - one['equal']} of {one['asked']} answers differ "
           f"from those of {one['than']}"
           for users, arms in document["differences"].items() for arm, one in arms.items()
           if one["equal"] != one["asked"]]
    return out + [f"{row['tokens']} tokens: another first token after a recall"
                  for row in document["lengths"] if not row["equal"]]


def damaged(document):
    """In words, each recall that brought other bytes than were computed."""
    return [f"{row['tokens']} tokens: other bytes came back than were computed"
            for row in document["lengths"] if not row["same_kv"]]
