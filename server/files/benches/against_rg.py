"""Measures a search beside ripgrep with equal filters: medians of alternating pairs, as ratios to unsorted ripgrep.

    cargo bench -p dormouse-files --bench search --no-run
    python3 server/files/benches/against_rg.py <bench binary> <rg> <root> [pairs]
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time

CASES = [
    ("literal", "import"),
    ("literal", "TODO"),
    ("literal", "qzxjkvbw_rare"),
    ("regex", r"def \w+_test"),
    ("regex", r"[A-Z]{3,}_[0-9]{4}\b"),
    ("fold", "authorization"),
]
FILTERS = "--no-ignore --hidden -g !.git -g !node_modules --max-filesize 1M -n --column --no-messages".split()


def measure(command):
    with tempfile.TemporaryFile() as out:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=False)
        wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        size = out.tell()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, size


def main():
    binary, rg, root = sys.argv[1:4]
    pairs = int((sys.argv[4:] or ["7"])[0])
    for mode, pattern in CASES:
        flags = {"literal": ["-F"], "fold": ["-F", "-i"], "regex": []}[mode]
        # RE2's \w and \b are ASCII; ripgrep gets the same.
        theirs = pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\b", r"(?-u:\b)") if mode == "regex" else pattern
        commands = {
            "rg": [rg, *FILTERS, *flags, "-e", theirs, root],
            "rg --sort path": [rg, *FILTERS, *flags, "--sort", "path", "-e", theirs, root],
            "here": [binary, root, pattern, mode, "100000000"],
            "here, one thread": [binary, root, pattern, mode, "100000000", "1"],
            "here, max=200": [binary, root, pattern, mode, "200"],
        }
        seen = {name: [] for name in commands}
        for name, command in commands.items():
            measure(command)
        for _ in range(pairs):
            for name, command in commands.items():
                seen[name].append(measure(command))
        median = lambda name, place: statistics.median(run[place] for run in seen[name])
        base = median("rg", 0), median("rg", 1)
        print(f"{mode} {pattern}: rg {base[0]:.3f} s, cpu {base[1]:.3f} s, {seen['rg'][0][2]} bytes")
        for name in list(commands)[1:]:
            wall, cpu = median(name, 0) / base[0], median(name, 1) / base[1]
            print(f"    {name:18} wall {wall:.2f}  cpu {cpu:.2f}  {seen[name][0][2]} bytes")


if __name__ == "__main__":
    main()
