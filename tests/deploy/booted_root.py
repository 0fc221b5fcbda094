"""The packages under a real systemd, booted by systemd-nspawn. packages_check.py starts this.

Shows what installed_root.py cannot: the units themselves work, with all their hardening, the
arena's mounts, and the drop-in that binds the service to them. A service of the root runs PROBE,
whose answers are compared once the root has gone down again.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import installed_root

SIZE = """[Mount]
Options=huge=always,mode=0700,uid=kvkeep,gid=kvkeep,size=160M,nosuid,nodev,noexec
"""
PROBE_UNIT = """[Service]
ExecStart=/probe/run
"""
# Prints one answer a line, "name: text". A step that hangs ends with the root's time limit.
PROBE = r"""#!/bin/bash
exec 2>&1 >/probe/answers
say() { echo "$1: $(eval "$2" 2>&1 | tr '\n' ' ')"; }
until_active() {
  for _ in $(seq 300); do
    [[ $(systemctl is-active kvkeepd) == active ]] && kvkeep --timeout 1s ping && return
    sleep 0.1 # for another process
  done
  systemctl status --no-pager kvkeepd
}
service='systemctl show --value -p ActiveState,StatusText,NRestarts kvkeepd'
until_active >/probe/started
say started "$service"
# As engines in containers have it, from before all that follows.
mkdir -p /mnt/engine /run/kvkeep-tenants/blue
chmod 0750 /run/kvkeep-tenants/blue
mount --bind /run/kvkeep /mnt/engine
engine='kvkeep --timeout 5s --endpoint unix:///mnt/engine/kvkeep.sock ping >/dev/null && echo reached'
admin='stat -c "%a %U" /run/kvkeep-admin'
say admin "$admin"
say put 'kvkeep put --durable kept /usr/bin/kvkeep | cut -d" " -f1'
systemctl kill -s KILL kvkeepd
sleep 1.5 # RestartSec, and its being noticed
until_active >/probe/restarted
say killed "$service"
say engine_after_kill "$engine"
kvkeep get kept --output /probe/back
say bytes 'cmp /probe/back /usr/bin/kvkeep && echo same'
say reload 'systemctl reload kvkeepd && echo done'
say admin_after_reload "$admin"
say down 'kvkeep down >/dev/null && systemctl is-active kvkeepd'
say up 'kvkeep up >/dev/null && systemctl is-active kvkeepd && stat -c %U /var/lib/kvkeep/identity'
apt-get --yes install /probe/new.deb >/probe/apt 2>&1
until_active >/probe/upgraded
say upgraded "$service"
say engine_after_upgrade "$engine"
say tenant 'stat -c %a /run/kvkeep-tenants/blue'
kvkeep wait --devices >/dev/null
kvkeep lookup kept >/probe/lookup
say places "grep -oE '(yes|-) +(yes|-) +(yes|-)$' /probe/lookup"
kvkeep down >/dev/null
mv /etc/kvkeep/kvkeep.yaml /probe/kvkeep.yaml
kvkeep up >/probe/up 2>&1
say init 'systemctl is-active kvkeepd; stat -c "%a %U %G" /etc/kvkeep/kvkeep.yaml'
mv /probe/kvkeep.yaml /etc/kvkeep/kvkeep.yaml
umount /mnt/engine
apt-get --yes purge kvkeep >>/probe/apt 2>&1
say purged 'systemctl is-active kvkeepd var-lib-kvkeep-arena-{rw,ro}.mount'
say mounts 'grep -c /var/lib/kvkeep /proc/mounts'
say left 'ls -d /var/lib/kvkeep /var/cache/kvkeep /etc/kvkeep /run/kvkeep*; getent passwd kvkeep'
journalctl -u kvkeepd --no-pager -o cat >/probe/journal
systemctl --force poweroff
"""


def lay_out(folder, lower, packages):
    installed_root.mount(None, pathlib.Path("/"), flags=installed_root.MS_REC |
                         installed_root.MS_PRIVATE)
    # nspawn looks for its processes, and leaves notes of its own.
    installed_root.mount("proc", pathlib.Path("/proc"), "proc")
    installed_root.mount("tmpfs", pathlib.Path("/run"), "tmpfs", data="mode=0755")
    installed_root.mount("tmpfs", folder, "tmpfs", data="size=3G,mode=0755")
    for name in ("upper", "work"):
        (folder / name).mkdir()
    root = installed_root.Root(folder / "root")
    installed_root.overlay(lower, folder / "upper", folder / "work", root.path)
    life = installed_root.Life(root, packages, None)
    installed_root.mount("proc", root.file("/proc"), "proc")
    life.install(sorted(packages.glob("kvkeep_*.deb")))
    installed_root.run("umount", root.file("/proc"))
    root.file("/probe").mkdir()
    root.file("/probe/new.deb").write_bytes(life.another_version("0.2.0-1").read_bytes())
    return root


def configure(root):
    """Sets up a G2 that outlives the daemon, as deploy/README.md tells the operator."""
    root.file("/etc/kvkeep/kvkeep.yaml").write_text(installed_root.CONFIG)
    units = root.file("/etc/systemd/system")
    shutil.copytree(root.file("/usr/share/kvkeep/examples/systemd/kvkeepd.service.d"),
                    units / "kvkeepd.service.d")
    (units / "var-lib-kvkeep-arena-rw.mount.d").mkdir()
    (units / "var-lib-kvkeep-arena-rw.mount.d/size.conf").write_text(SIZE)
    (units / "probe.service").write_text(PROBE_UNIT)
    root.file("/probe/run").write_text(PROBE)
    root.file("/probe/run").chmod(0o755)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "probe.service").symlink_to("../probe.service")


def boot(folder, lower, packages):
    if shutil.which("systemd-nspawn") is None:
        return 77
    root = lay_out(folder, lower, packages)
    configure(root)
    done = subprocess.run(
        ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
         "--link-journal=no", "--console=pipe", f"--directory={root.path}",
         f"--machine=kvkeep-{os.getpid()}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800, check=False)
    answers = root.file("/probe/answers")
    if not answers.exists():
        print(f"systemd does not boot here: {done.stderr[-500:]}", file=sys.stderr)
        return 77
    said = dict(re.findall(r"^(\w+): (.*?) *$", answers.read_text(), re.MULTILINE))
    journal = root.file("/probe/journal")
    told = journal.read_text() if journal.exists() else "no journal"
    for name, expected in (
            ("started", "0 active serving; recovered 0 chunks of G2"),
            ("put", "stored"),
            ("killed", "1 active serving; recovered 1 chunks of G2"),
            ("bytes", "same"), ("reload", "done"),
            ("engine_after_kill", "reached"), ("engine_after_upgrade", "reached"),
            ("down", "inactive"), ("up", "active kvkeep"),
            ("init", "active 640 root kvkeep"),
            ("tenant", "750"), ("admin", "700 kvkeep"), ("admin_after_reload", "700 kvkeep"),
            ("upgraded", "0 active serving; recovered 1 chunks of G2"),
            ("places", "yes  yes  -"), ("mounts", "0")):
        found = said.get(name, "nothing")
        assert sorted(found.split()) == sorted(expected.split()), (name, found, said, told)
    assert " active" not in f" {said['purged']}", said
    assert said["left"].count("No such file or directory") == 4, said
    assert "kvkeep:" not in said["left"], said
    return 0
