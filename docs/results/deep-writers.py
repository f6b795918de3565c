"""64 processes that make and write 40 files of 16 KiB each, in a directory 40 levels deep and in one at the top, in turns:
what counting use costs per level. deep-writers.py DIRECTORY [ROUNDS]"""

import os
import statistics
import sys
import time

PROCESSES, FILES, BLOCKS = 64, 40, 4
DATA = b"x" * 4096


def timed(directory, tag):
    start, go = os.pipe()
    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(start, 1)
            for number in range(FILES):
                file = os.open(f"{directory}/{tag}.{process}.{number}", os.O_CREAT | os.O_WRONLY, 0o644)
                for _ in range(BLOCKS):
                    os.write(file, DATA)
                os.close(file)
            os._exit(0)
        children.append(child)
    os.close(start)
    time.sleep(0.3)
    began = time.monotonic()
    os.close(go)
    for child in children:
        os.waitpid(child, 0)
    took = time.monotonic() - began
    for name in os.listdir(directory):
        if name.startswith(f"{tag}."):
            os.unlink(f"{directory}/{name}")
    return took


root, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 31
places = [os.path.join(root, "flat"), os.path.join(root, *(f"d{level}" for level in range(40)))]
for place in places:
    os.makedirs(place, exist_ok=True)
times = ([], [])
for turn in range(rounds):
    for which in (0, 1) if turn % 2 else (1, 0):
        times[which].append(timed(places[which], turn * 2 + which))
        time.sleep(0.3)
flat, deep = (each[1:] for each in times)
ratios = sorted(b / a for a, b in zip(flat, deep))
quarter = len(ratios) // 4
print(
    f"flat {statistics.median(flat):.3f} s, deep {statistics.median(deep):.3f} s, deep/flat {statistics.median(ratios):.2f}"
    f" (quartiles {ratios[quarter]:.2f}-{ratios[-1 - quarter]:.2f}, all {ratios[0]:.2f}-{ratios[-1]:.2f})"
)
