"""Runs docs/clients.md as it stands, section by section, against a real agent: `documented.py` in the project's folder.

A fenced block of `sh` is run by bash in a folder that holds the project's `proto` and `tests`; comments around it say what it needs
(`needs:`), what it must print (`prints:`) and how it must fail (`fails:`); one that says `runs:` is run in a block's place. A block under `file:` must be that file. The environment
names DORMOUSED; what a section needs and this machine lacks skips the section, and says so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
WORKSPACE = "customer-42/main"
APP = "import os\n# TODO: tidy\nDEBUG = True\n"
# Seconds that a compiler may take on a slow machine.
PATIENCE = 900


def parts(section):
    """What stands in a section, in order: (kind, text)."""
    pattern = re.compile(r"^<!-- (needs|prints|fails|file|runs): (.*?) -->$|^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for found in pattern.finditer(section):
        yield (found[1], found[2]) if found[1] else (found[3], found[4])


def skipped(name, lacks):
    line = f"skipped: docs/clients.md, {name}: {lacks} is not here"
    print(line)
    if "DORMOUSE_SKIPS" in os.environ:
        with open(os.environ["DORMOUSE_SKIPS"], "a") as file:
            file.write(line + "\n")


def run(block, checks, place, environment, app):
    app.write_text(APP)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    must_fail = any(kind == "fails" for kind, _ in checks)
    told = f"\n{block}\n=> exit {done.returncode}\n{done.stdout}"
    assert (done.returncode != 0) == must_fail, told
    for _, text in checks:
        assert text in done.stdout, f"{text} is missing: {told}"
    if any(text in ("patched", '"replacements": 1', '"replayed": true') for _, text in checks):
        assert "DEBUG = False" in app.read_text(), told


def play(section, place, environment, app):
    """Checks a section; gives the number of blocks that were run."""
    name = section.split("\n", 1)[0].strip()
    items = list(parts(section))
    expected_file, count = None, 0
    for at, (kind, text) in enumerate(items):
        if kind == "needs":
            here = lambda thing: Path(thing).exists() if thing.startswith("/") else shutil.which(thing, path=environment["PATH"])
            lacks = [thing for thing in text.split() if not here(thing)]
            if lacks:
                skipped(name, ", ".join(lacks))
                return count
        elif kind == "file":
            expected_file = PROJECT / text
        elif expected_file:
            assert text == expected_file.read_text(), f"{name}: the block is not {expected_file}"
            expected_file = None
        elif kind in ("sh", "runs"):
            checks = []
            for more in items[at + 1 :]:
                if more[0] not in ("prints", "fails"):
                    break
                checks.append(more)
            run(text, checks, place, environment, app)
            count += 1
    return count


def main():
    text = (PROJECT / "docs/clients.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    with tempfile.TemporaryDirectory(prefix="dormouse-") as name:
        place = Path(name)
        app = place / "files/home/user/project/app.py"
        app.parent.mkdir(parents=True)
        app.write_text(APP)
        work = place / "work"
        work.mkdir()
        (work / "proto").symlink_to(PROJECT / "proto")
        (work / "tests").symlink_to(PROJECT / "tests")
        command = [os.environ["DORMOUSED"], "serve", "--log-format", "json", "--listen", "tcp:127.0.0.1:0"]
        command += ["--host-listen", f"unix:{place}/h", "--state-dir", f"{place}/agent"]
        command += ["--workspace", f"{WORKSPACE}=directory:{place}/files"]
        with (place / "log").open("w") as log:
            agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        try:
            listen = json.loads(agent.stdout.readline())["listen"]
            address = next(one for one in listen if one.startswith("tcp:")).removeprefix("tcp:")
            import google.rpc.status_pb2

            googleapis = Path(google.rpc.status_pb2.__file__).parents[2]
            tools = Path(sys.executable).parent
            environment = {**os.environ, "AGENT": address, "GOOGLEAPIS": str(googleapis), "PATH": f"{tools}:{os.environ['PATH']}"}
            count = 0
            for section in sections:
                played = play(section, work, environment, app)
                print(f"{section.split(chr(10), 1)[0]}: {played} blocks")
                count += played
        finally:
            agent.terminate()
            status = agent.wait()
        assert status == 0, (place / "log").read_text()
    assert count > 0
    print(f"{count} passed, 0 failed")


if __name__ == "__main__":
    main()
