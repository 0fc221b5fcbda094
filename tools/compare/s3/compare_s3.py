"""kvkeep beside others on one S3 server, in the same minutes: a round is a slice of every arm.

tools/compare/s3/run builds what this needs, finds the server, and calls it. Exit codes: 0; 1 a
wrong byte, or one of our own arms failed; 2 wrong usage.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parents[1] / "measure")]

from contest import ROOT, environment_of  # noqa: E402
from figures import KIB, chunk_sizes  # noqa: E402
from gateway import Gateway, OtherServer  # noqa: E402
from processes import ChildFailed  # noqa: E402
from s3_contest import ArmProcess, Contest, Plan  # noqa: E402
import s3_report  # noqa: E402

OURS = ("bare", "kvkeep")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="versitygw, to be started")
    parser.add_argument("--url", help="http://host:port/bucket of a server that is there; needs"
                        " --credentials, and LMCache's adapter is left out")
    parser.add_argument("--credentials", help="file: key id and secret, a line each")
    parser.add_argument("--build", default=ROOT / "build/release",
                        type=lambda words: pathlib.Path(words).absolute())
    parser.add_argument("--lmcache", help="environment with lmcache==0.5.6")
    parser.add_argument("--nixl", help="environment with nixl==1.5.1")
    parser.add_argument("--sizes", default="2MiB,16MiB", help="of chunks (default %(default)s)")
    parser.add_argument("--chunks", type=int, default=64, help="of a run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--connections", type=int, default=64,
                        help="of kvkeep and of the bare loop (default %(default)s)")
    parser.add_argument("--lookup", default="512,100",
                        help="keys of a lookup, and how many are there (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="figures, a line a row")
    options = parser.parse_args(arguments)
    if (options.server is None) == (options.url is None):
        parser.error("either --server or --url")
    if options.url is not None and options.credentials is None:
        parser.error("--url needs --credentials")
    return options


def plan_of(options):
    keys, present = (int(part) for part in options.lookup.split(","))
    return Plan(sizes=chunk_sizes(options.sizes),
                chunks=options.chunks, rounds=options.rounds, lookup_keys=keys,
                lookup_present=present, lookup_bytes=64 * KIB)


def arms_of(options, gateway, directory, say):
    """The arms that start. It says which are left out; our own must start."""
    kvkeep = [sys.executable, HERE / "kvkeep_arm.py"]
    wanted = [("bare", [sys.executable, HERE / "bare_arm.py"], {}, False),
              ("kvkeep", kvkeep, {}, True)]
    for name, environment in (("lmcache", options.lmcache), ("nixl", options.nixl)):
        if environment is None:
            say(f"{name} is left out: no --{name}")
        elif name == "lmcache" and options.url is not None:
            say("lmcache is left out: its adapter speaks virtual-host style only")
        else:
            wanted.append((name, [pathlib.Path(environment).absolute() / "bin/python",
                                  HERE / f"{name}_arm.py"], {}, True))
    arms = []
    for number, (name, command, environment, looks_up) in enumerate(wanted):
        own = pathlib.Path(directory) / f"arm-{number}"
        own.mkdir()
        where = [gateway.endpoint, gateway.bucket, gateway.region, gateway.credentials,
                 options.connections, own]
        try:
            arms.append(ArmProcess(name, command + where,
                                   {**environment_of(options.build), **environment}, looks_up))
        except (ChildFailed, OSError) as failure:
            say(f"{name} is left out: {failure}")
            if name in OURS:
                raise
    return arms


def write(path, options, gateway, arms, contest):
    """A line a row: who, then what each came to."""
    head = {"server": gateway.version, "date": datetime.date.today().isoformat(),
            "cores": len(os.sched_getaffinity(0)), "chunks": options.chunks,
            "rounds": options.rounds, "connections": options.connections,
            "lookup": options.lookup, "wrong_bytes": contest.wrong_bytes,
            "failed": contest.failures, "versions": {arm.name: arm.version for arm in arms}}
    rows = [head, *s3_report.figures(contest.samples), *s3_report.ratios(contest.samples)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main(arguments):
    options = parse(arguments)

    def say(text):
        print(f"compare: {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="kvkeep-s3-") as directory:
        if options.server is not None:
            gateway = Gateway(options.server, directory)
        else:
            gateway = OtherServer(options.url, options.credentials)
        arms, contest = [], Contest(plan_of(options), gateway, say)
        try:
            arms = arms_of(options, gateway, directory, say)
            contest.run(arms)
        finally:
            for arm in arms:
                arm.stop()
            gateway.stop()
        if options.json is not None:
            write(options.json, options, gateway, arms, contest)
        print(", ".join(f"{arm.name} ({arm.version})" for arm in arms), "on", gateway.version)
    print(s3_report.text(contest.samples))
    print(f"wrong bytes: {contest.wrong_bytes}")
    return 1 if contest.wrong_bytes or contest.failures.keys() & set(OURS) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
