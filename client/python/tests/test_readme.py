"""The README's examples: they type-check under --strict, and they run as they stand against the real agent."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from real import RealAgent

HERE = Path(__file__).resolve().parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
# What each example prints, among other things.
SAID = [(0, "app.py 1\nFalse"), (1, "1 25\n25\n"), (2, '"line":2')]
SNIPPETS = """
import dormouse
ws = dormouse.Workspace("w", "tcp:127.0.0.1:1")
path = "/f"
hits = ws.files.search("/home/user/project", "TODO", include=["*.py"], context_lines=1)
for m in hits["matches"]:
    print(m["path"], m["line"] + 1)
hits["truncated"], hits["stop_reason"]
rev = ws.files.stat(path, revision=True)["revision"]
ws.files.patch(path, edits=[{"old_text": "a", "new_text": "b"}], expected_revision=rev)
data: bytes = ws.files.read(path)
text: str = ws.files.read_text(path)
"""


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
@pytest.mark.parametrize("example", [*EXAMPLES, SNIPPETS])
def test_it_type_checks(example: str, tmp_path: Path) -> None:
    place = tmp_path / "example.py"
    place.write_text(example)
    # As a user has it: the library found by import, nothing of this folder's settings.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={HERE}/.mypy_cache", str(place)]
    environment = {"MYPYPATH": str(HERE / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout


def test_a_mistake_is_seen_by_the_types(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    place = tmp_path / "mistake.py"
    place.write_text(SNIPPETS + 'hits["matches"][0]["lines"]\nws.files.search("/p", "x", max_match=3)\n')
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={HERE}/.mypy_cache", str(place)]
    environment = {"MYPYPATH": str(HERE / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert '"lines"' in done.stdout and '"max_match"' in done.stdout, done.stdout


@pytest.mark.parametrize(("index", "said"), SAID)
def test_it_runs(index: int, said: str, tmp_path: Path) -> None:
    assert len(EXAMPLES) == 3
    agent = RealAgent(tmp_path, [])
    try:
        agent.put("/home/user/project/app.py", "# TODO: nothing yet\nDONE\n" if index else "# TODO: nothing yet\n")
        text = EXAMPLES[index].replace("unix:/run/dormouse/files.sock", agent.endpoint)
        assert agent.endpoint in text
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, env={"PYTHONPATH": str(HERE / "src")}
        )
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
        if index == 0:
            assert (agent.files / "home/user/project/app.py").read_text() == "# DONE: nothing yet\n"
    finally:
        agent.stop()
