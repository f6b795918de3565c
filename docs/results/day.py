#!/usr/bin/env python3
"""What common commands cost in a space and natively, in turns: `day.py NATIVE MOUNT [ROUNDS]`, two empty directories, the second in a
space whose pool lies on the file system of the first. Medians in milliseconds, least and most of the ratios of each round."""
import statistics
import subprocess
import sys
import time

SOURCE = "/usr/include"
# Nothing that goes on in the background.
GIT = "git -c safe.directory=* -c gc.auto=0"
JOBS = [
    ("tar x", "mkdir {d}/t && tar xf {d}/../../day.tar -C {d}/t"),
    ("cp -r", "cp -r {d}/t {d}/c"),
    ("du", "du -s {d}/c"),
    ("find -newer", "find {d}/c -type f -newer /etc/passwd"),
    ("grep -r", "grep -r zzzqqq {d}/c || true"),
    ("grep -r again", "grep -r zzzqqq {d}/c || true"),
    ("tar c", "tar cf - -C {d} c | cat"),
    ("chmod -R", "chmod -R g-w {d}/c"),
    ("chown -R", "chown -R 1000:1000 {d}/c"),
    ("touch all", "find {d}/c -type f -print0 | xargs -0 touch"),
    ("rsync -a", "rsync -a {d}/c/ {d}/r/"),
    ("rsync -a again", "rsync -a {d}/c/ {d}/r/"),
    ("git add", "cd {d}/r && git init -q . && {git} add -A 2>/dev/null"),
    ("git commit", "cd {d}/r && {git} -c user.name=a -c user.email=a commit -qm a"),
    ("git status", "cd {d}/r && {git} status --short"),
    ("git checkout", "cd {d}/r && rm -rf usr && {git} checkout -q ."),
    ("append, 20,000 opens", "python3 -c \"\nfor i in range(20000):\n  f = open('{d}/a%d' % (i % 500), 'a'); f.write('x' * 100); f.close()\""),
    ("read, 20,000 opens", "python3 -c \"\nfor i in range(20000): open('{d}/a%d' % (i % 500)).read()\""),
    ("dd, 1 GiB", "dd if=/dev/zero of={d}/big bs=1M count=1024 status=none"),
    ("dd of 4 KiB, 200 MB, fsync", "dd if=/dev/zero of={d}/big2 bs=4k count=50000 conv=fsync status=none"),
    ("cat, 1 GiB", "cat {d}/big"),
    ("flock, 300 times", "for i in $(seq 300); do flock {d}/lock true; done"),
    ("rm -rf", "rm -rf {d}/r {d}/c {d}/t {d}/a* {d}/big* {d}/lock"),
]

native, mount = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
took = {}
for place in (native, mount):
    subprocess.run(f"tar cf {place}/../day.tar {SOURCE} 2>/dev/null; mkdir -p {place}/day", shell=True, check=False)
for number in range(rounds):
    for place in (native, mount) if number % 2 == 0 else (mount, native):
        for name, command in JOBS:
            began = time.monotonic()
            subprocess.run(command.format(d=place + "/day", git=GIT), shell=True, check=True, stdout=subprocess.DEVNULL)
            took.setdefault(name, {}).setdefault(place, []).append((time.monotonic() - began) * 1000)
for name, sides in took.items():
    own, other = sides[native], sides[mount]
    ratios = sorted(b / a for a, b in zip(own, other))
    print(f"| {name} | {statistics.median(own):.0f} | {statistics.median(other):.0f} | "
          f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}) |")
