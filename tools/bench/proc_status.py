"""Facts that /proc tells of a process. OSError: it is not there, or does not tell."""

import pathlib

KIB = 1024


def _number(directory, name):
    """Behind "name:" of a process's or thread's status file."""
    for line in (directory / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"{directory}/status does not tell {name}")


def _proc(pid):
    return pathlib.Path("/proc") / str(pid)


def resident_beside_shared_bytes(pid):
    return (_number(_proc(pid), "RssAnon") + _number(_proc(pid), "RssFile")) * KIB


def resident_shared_bytes(pid):
    shared = _number(_proc(pid), "RssShmem")
    try:  # pages of a hugetlbfs are counted apart, and not at all by a kernel that has none
        shared += _number(_proc(pid), "HugetlbPages")
    except OSError:
        pass
    return shared * KIB


def wake_ups(pid):
    """How often each of its threads went to sleep by itself, by the threads' names."""
    by_name = {}
    for thread in (_proc(pid) / "task").iterdir():
        try:
            name = (thread / "comm").read_text().rstrip("\n")
            count = _number(thread, "voluntary_ctxt_switches")
        except OSError:
            if thread.exists():
                raise
            continue  # it has ended meanwhile
        by_name[name] = by_name.get(name, 0) + count
    if not by_name:
        raise OSError(f"{_proc(pid)}/task names no thread")
    return by_name
