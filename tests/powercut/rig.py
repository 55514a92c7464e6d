#!/usr/bin/env python3
"""Cuts the power in the middle of patches, mounts what the disk then holds, recovers, and looks.

    rig.py DRIVER [--files ext4|xfs|btrfs] [--patches N] [--states N] [--writer] [--leave-out RULE] [--expect-failures]

DRIVER is the example `patch_driver` of dormouse-live; with --leave-out it must be built with the feature `failpoints`.
With --writer a process of the workspace replaces the file after each patch. For each state of the disk:

- every change that was acknowledged is there, exactly once, and its key answers `replayed`;
- the change that was in flight, sent again, is there exactly once;
- no file is torn, and nothing is left of what was staged.

Exits 1 where one of these fails; with --expect-failures, for negative controls, where none does.
Needs root, qemu-storage-daemon, loop devices and FUSE.
"""
import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile

from recorder import Recorder, Replay, run


class Driver:
    """The driver on one mounted workspace; opening it recovers it."""

    def __init__(self, path, root, leave_out=None):
        command = [path, root] + (["--leave-out", leave_out] if leave_out else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "open":
            raise RuntimeError("the workspace does not open")

    def send(self, command):
        self.process.stdin.write(command + "\n")
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Change:
    """A command, and when it began and was answered, as counts of the log's entries."""

    def __init__(self, command, begun, answered):
        self.command, self.begun, self.answered = command, begun, answered
        self.verb, self.key, *self.paths = command.split(" ")

    def is_acknowledged(self, cut):
        return self.answered <= cut

    def is_in_flight(self, cut):
        return self.begun <= cut < self.answered


def commands(count):
    """Patches of a few files, creates with new directories, and what may be done with those."""
    chance = random.Random(7)
    for number in range(count):
        size = chance.randrange(3000)
        if number % 5 == 4:
            yield f"patch c{number} /new/{number}/f {size}"
            if number % 15 == 4:
                yield f"move m{number} /new/{number}/f /moved/{number}"
            elif number % 15 == 9:
                yield f"remove r{number} /new/{number}"
            else:
                yield f"directory d{number} /made/{number}"
        else:
            yield f"patch p{number} /f{number % 3} {size}"


def replace_by_process(path):
    """What an editor does: another file, flushed, renamed over this one."""
    with open(path, "rb") as file:
        text = file.read()
    with open(path + ".process", "wb") as file:
        file.write(b"process\n" + text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".process", path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def record(options, place):
    """Runs the workload on a recorded disk."""
    recorder = Recorder(os.path.join(place, "stack"), options.files)
    changes = []
    try:
        root = os.path.join(recorder.mount, "root")
        os.mkdir(root)
        os.mkdir(os.path.join(recorder.mount, "state"), 0o700)
        driver = Driver(options.driver, root, options.leave_out)
        run("sync", "--file-system", recorder.mount)
        start = recorder.count()
        for number, command in enumerate(commands(options.patches)):
            begun = recorder.count()
            answer = driver.send(command)
            if not answer.startswith("done ") or not answer.endswith(" fresh"):
                raise RuntimeError(f"{command}: {answer}")
            changes.append(Change(command, begun, recorder.count()))
            if options.writer and changes[-1].verb == "patch":
                replace_by_process(root + changes[-1].paths[0])
            if number % 4 == 3:
                # The workspace's own writes, never flushed, that other blocks may wait for.
                with open(os.path.join(root, "noise"), "ab") as noise:
                    noise.write(b"n" * 5000)
        driver.kill()
        end = recorder.count()
    finally:
        recorder.stop()
    return recorder, changes, start, end


def count_line(path, line):
    try:
        with open(path, "rb") as file:
            return file.read().split(b"\n").count(line.encode())
    except FileNotFoundError:
        return 0


def text_is_whole(path):
    with open(path, "rb") as file:
        text = file.read()
    return b"\0" not in text and text.endswith(b"END\n")


def look(options, mount, changes, cut):
    """What is wrong with this state."""
    root = os.path.join(mount, "root")
    wrong = []
    acknowledged = [change for change in changes if change.is_acknowledged(cut)]
    in_flight = [change for change in changes if change.is_in_flight(cut)]
    gone = {path for change in acknowledged + in_flight if change.verb in ("move", "remove") for path in change.paths[:1]}

    def check(change, times_wrong):
        path = root + change.paths[0]
        if change.verb == "patch":
            if not any(change.paths[0] == at or change.paths[0].startswith(at + "/") for at in gone):
                times = count_line(path, change.key)
                if times != 1:
                    wrong.append(f"{times_wrong}: a patch is there {min(times, 2)} times")
        elif change.verb == "move":
            if os.path.exists(path) or not os.path.exists(root + change.paths[1]):
                wrong.append(f"{times_wrong}: a move is not there")
        elif change.verb == "remove":
            if os.path.exists(path):
                wrong.append(f"{times_wrong}: a remove is not there")
        elif not os.path.isdir(path):
            wrong.append(f"{times_wrong}: a directory is not there")

    driver = Driver(options.driver, root)
    for change in acknowledged:
        check(change, "acknowledged")
    for change in acknowledged:
        if not driver.send(change.command).endswith(" replayed"):
            wrong.append("acknowledged: its key is forgotten")
    for change in in_flight:
        if not driver.send(change.command).startswith("done "):
            wrong.append("in flight: the retry is refused")
        check(change, "in flight, sent again")
    for change in acknowledged:
        check(change, "acknowledged, sent again")
    driver.close()
    for directory, _, names in os.walk(root):
        for name in names:
            if name != "noise" and not name.endswith(".process") and not text_is_whole(os.path.join(directory, name)):
                wrong.append("a file is torn")
    # A removed tree is deleted in the background, and the driver may end before that.
    state = os.path.join(mount, "state")
    if any(name.startswith("s") and not os.path.isdir(os.path.join(state, name)) for name in os.listdir(state)):
        wrong.append("something staged is left")
    return set(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("--files", choices=["ext4", "xfs", "btrfs"], default="ext4")
    parser.add_argument("--patches", type=int, default=30)
    parser.add_argument("--states", type=int, default=150)
    parser.add_argument("--writer", action="store_true")
    parser.add_argument("--leave-out")
    parser.add_argument("--expect-failures", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="powercut-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        recorder, changes, start, end = record(options, place)
        replay = Replay(recorder, place)
        flushes = sum(1 for entry in replay.entries[start:end] if entry[2] & 3)
        chance = random.Random(11)
        states = [(cut, kind, turn) for cut in range(start, end + 1)
                  for kind, turn in (("all", 0), ("none", 0), ("half", 0), ("half", 1))]
        chance.shuffle(states)
        states = sorted(states[:options.states])
        mount, image = os.path.join(place, "after"), os.path.join(place, "after.img")
        os.mkdir(mount)
        failures, sound = collections.Counter(), 0
        for cut, kind, turn in states:
            replay.image(cut, kind, image, (cut, kind, turn).__repr__())
            mount_options = "loop,nouuid" if options.files == "xfs" else "loop"
            run("mount", "-o", mount_options, image, mount)
            try:
                wrong = look(options, mount, changes, cut)
            finally:
                run("umount", mount)
            failures.update(wrong)
            sound += not wrong
        shutil.rmtree(mount)
        print(f"{options.files}{' with a writer' if options.writer else ''}"
              f"{', without ' + options.leave_out if options.leave_out else ''}: {len(changes)} changes, "
              f"{flushes} flushes and forced writes, {len(states)} states, {sound} right")
        for what, times in failures.most_common():
            print(f"  {times} {what}")
    return int(bool(failures) != options.expect_failures)


if __name__ == "__main__":
    sys.exit(main())
