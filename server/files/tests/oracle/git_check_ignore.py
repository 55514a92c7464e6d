"""Compares globs with git: each as the only pattern of an exclude file, over files that exist.

    cargo build -p dormouse-files --example globs
    python3 server/files/tests/oracle/git_check_ignore.py target/debug/examples/globs [random globs] [seed]

Left out is what differs on purpose: alternation in braces, and what is refused here but means nothing to git. Stars in
a row are pairs only where they are a component of their own; git takes some others for such.
"""

import os
import random
import re
import subprocess
import sys
import tempfile

TABLE = r"""build build/ src **/ sub/build /build /build/ build/** src/** src/*.ts src/**/*.ts /top.py [!t]*.py [^t]*.py **.py *.py *
** /** a/**/b a/** **/a **/a/** a**b a/**b *a* ?.py ??? [a-c]* [!a-c]* [a-]* [-a]* []a]* \a \*.py a\?b src/x src/x/ x/*.ts /*/x */x
*/ */*/ /* /*/* . .* .?* .env [.]env src/.env [[:alpha:]]* [[:digit:]]* [[:upper:]] [a[:digit:]]* foo** **foo **/foo/** a/*/b é* ? [é]*
a.b a.b/ x\ y "x y" a//b a/b/ /a/b *.tar.* *.PY [A-Z]* \[x] [[]x] *] [a/b] a?b a[/]b [!/]b **/** **/* */** ***  a/***/b ***/b"""
FILES = """build src/build/o d/build/deep/o sub/build/o src/x.py src/x/y.ts src/x/z.tsx src/.env .env top.py t.py a.py b.py main.ts other/src/x.ts
a/b/c.py a/b a.b/c a/x/b a/x/y/b ab axb a/xb foo xfoo foobar d/foo/e x.tar.gz X.PY A é é2/f aé [x] ]x -x ab/c a-c/d 1/2 1x x/1/y.ts *.py a?b abc abd z""".split()
PIECES = ["a", "b", "c", "x", "src", "build", ".py", ".ts", ".", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[a-c]", "é", "**/", "/**", "1", "\\", "-", "foo"]


def main():
    binary, count, seed = sys.argv[1], int((sys.argv[2:] or ["500"])[0]), int((sys.argv[3:] or ["1"])[0])
    chance = random.Random(seed)
    globs = TABLE.split() + ["x y", "x\\ y", "a b "]
    globs += ["".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(count)]
    globs = [glob for glob in dict.fromkeys(globs) if not re.search(r"\*\*\*|[^/]\*\*/\*\*", glob)]
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["git", "init", "-q", root], check=True)
        files = []
        for name in FILES:
            path = os.path.join(root, name)
            if os.path.isdir(path) or any(os.path.isfile(os.path.join(root, *name.split("/")[:cut])) for cut in range(1, name.count("/") + 1)):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
            files.append(name)
        asked = "".join(f"{glob.encode().hex()}\t{name.encode().hex()}\n" for glob in globs for name in files)
        answers = iter(subprocess.run([binary], input=asked, capture_output=True, text=True, check=True).stdout.splitlines())
        different = refused = 0
        for glob in globs:
            with open(os.path.join(root, ".git/info/exclude"), "w") as exclude:
                exclude.write(glob + "\n")
            names = "\0".join(files) + "\0"
            run = subprocess.run(["git", "-C", root, "check-ignore", "--no-index", "--stdin", "-z"], input=names, capture_output=True, text=True)
            expect = set(run.stdout.split("\0")) - {""}
            here = [next(answers) for _ in files]
            if here[0].startswith("refused"):
                refused += 1
                if expect:
                    different += 1
                    print(f"{glob!r}: git takes {sorted(expect)[:4]}, here {here[0]}")
                continue
            seen = {name for name, answer in zip(files, here) if answer == "yes"}
            if seen != expect:
                different += 1
                print(f"{glob!r}: only git {sorted(expect - seen)[:4]}, only here {sorted(seen - expect)[:4]}")
    print(f"{len(globs)} globs, {refused} refused, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
