"""A disk that remembers every write, and what it may hold after a power cut at any of them.

The stack needs root, loop devices and FUSE, and no virtual machine:

    file system ─ loop device ─ FUSE export ─ blklogwrites ─ disk.img
                                                  └─ log.img

The loop device says that it has a write-back cache, so every flush and forced write of the file system is in the log. What
was written before a flush is durable; of what came after it, any part may be.
The log is that of dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst of the kernel).
"""
import os
import random
import struct
import subprocess
import time

SECTOR = 512
FLUSH, FORCED, DISCARD = 1, 2, 4
IMAGE_MIB = {"ext4": 64, "xfs": 320, "btrfs": 256}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Recorder:
    """A fresh file system, mounted at `mount`, whose writes are logged from its making on."""

    def __init__(self, place, kind):
        self.place, self.kind = place, kind
        self.mount = os.path.join(place, "mount")
        os.makedirs(self.mount)
        disk, log, export = (os.path.join(place, name) for name in ("disk.img", "log.img", "export"))
        self.base, self.log = os.path.join(place, "base.img"), log
        size = IMAGE_MIB[kind] << 20
        for path, length in ((disk, size), (log, 1 << 30), (export, 0)):
            with open(path, "wb") as file:
                file.truncate(length)
        run(f"mkfs.{kind}", "-q", disk)
        run("cp", "--sparse=always", disk, self.base)
        self.daemon = subprocess.Popen([
            "qemu-storage-daemon",
            "--blockdev", f"driver=file,node-name=disk,filename={disk}",
            "--blockdev", f"driver=file,node-name=log,filename={log}",
            "--blockdev", f"driver=blklogwrites,node-name=recorded,file=disk,log=log,log-sector-size={SECTOR}",
            "--export", f"type=fuse,id=export,node-name=recorded,mountpoint={export},writable=on,growable=off",
        ], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.loop = None
        try:
            self._wait_for(lambda: os.stat(export).st_size == size)
            self.loop = run("losetup", "--find", "--show", export)
            with open(f"/sys/block/{os.path.basename(self.loop)}/queue/write_cache") as cache:
                assert cache.read().strip() == "write back", "flushes would not be seen"
            run("mount", self.loop, self.mount)
        except BaseException:
            self.stop()
            raise
        self._position, self._count = SECTOR, 0

    def _wait_for(self, condition):
        deadline = time.monotonic() + 10
        while not condition():
            if time.monotonic() > deadline or self.daemon.poll() is not None:
                raise RuntimeError("the storage daemon does not export the disk")
            time.sleep(0.02)

    def count(self):
        """How many entries the log has now."""
        for entry in entries(self.log, self._position):
            self._position, self._count = entry[-1], self._count + 1
        return self._count

    def stop(self):
        subprocess.run(["umount", "--lazy", self.mount], capture_output=True)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], capture_output=True)
            self.loop = None
        deadline = time.monotonic() + 5
        while subprocess.run(["findmnt", "--noheadings", self.mount], capture_output=True).returncode == 0:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.daemon.terminate()
        self.daemon.wait(timeout=20)


def entries(log, position=SECTOR):
    """Entries of the log from a position: sector, count of sectors, flags, where its data is, where the next one is."""
    with open(log, "rb") as file:
        while True:
            file.seek(position)
            head = file.read(32)
            if len(head) < 32:
                return
            sector, count, flags, _ = struct.unpack("<QQQQ", head)
            if count == 0 and flags == 0:
                return
            data = position + SECTOR
            position = data if flags & DISCARD else data + count * SECTOR
            yield sector, count, flags, data, position


class Replay:
    """Images of the disk as a power cut leaves it."""

    def __init__(self, recorder, place):
        self.entries = list(entries(recorder.log))
        self.log = open(recorder.log, "rb")
        self.durable_path = os.path.join(place, "durable.img")
        run("cp", "--sparse=always", recorder.base, self.durable_path)
        self.durable = open(self.durable_path, "r+b", buffering=0)
        self.applied = 0

    def image(self, cut, kind, path, seed):
        """At the entry `cut`: all before the last flush, and of the rest `all`, `none`, or a random `half`.

        Cuts must not go backwards, since the durable part is only added to."""
        flushes = [at for at in range(self.applied, cut) if self.entries[at][2] & FLUSH]
        for entry in self.entries[self.applied:flushes[-1] if flushes else self.applied]:
            self._apply(self.durable, entry)
        self.applied = flushes[-1] if flushes else self.applied
        run("cp", "--sparse=always", self.durable_path, path)
        chance = random.Random(seed)
        with open(path, "r+b", buffering=0) as image:
            for entry in self.entries[self.applied:cut]:
                if kind == "all" or entry[2] & FORCED or (kind == "half" and chance.random() < 0.5):
                    self._apply(image, entry)

    def _apply(self, image, entry):
        sector, count, flags, data, _ = entry
        if count == 0:
            return
        image.seek(sector * SECTOR)
        if flags & DISCARD:
            remaining = count * SECTOR
            while remaining:
                remaining -= image.write(bytes(min(remaining, 1 << 20)))
            return
        self.log.seek(data)
        image.write(self.log.read(count * SECTOR))
