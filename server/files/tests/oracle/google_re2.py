"""Compares the translation of RE2 with google-re2 (a package on PyPI).

    cargo build -p dormouse-files --example pattern
    python3 server/files/tests/oracle/google_re2.py target/debug/examples/pattern [random patterns] [seed]

Prints every difference that is not among the known ones, and ends with 1 if there is any.
"""

import random
import subprocess
import sys

import re2

TABLE = r"""
a.c|\d+|\D+|\s|\S|\w+|\W|\bfoo\b|\Boo|\Afoo|foo\z|^foo|foo$|(?m)^foo$|(?s).|a|a{2}|a{2,}|a{2,3}|a{,3}|a{ 2 }|a{|{|x{a}
a{01}|a{9999999999}|a{1001}|a{1000}|(a{32}){32}|(a{10}){100}|(a{10}){101}|((a{10}){10}){10}|((a{10}){10}){11}|(a{0}){1000}
a**|a++|a??|a???|a{2}{3}|a{2}?|a{2}??|a*?*|a*+|a(?i)*|a*(?i)*|a*(?i)?|(?i)*|(*)|a\|*|^*|(?:)*|(|)|(a|a)|()|(?:)|a\|\|b
[[a]|[a&&b]|[a~~b]|[a[b]]|[[.a.]]|[[=a=]]|[a--b]|[[:foo:]]|[[:alpha:]]+|[[:^alpha:]]+|[[:word:]]|[[:a]|[\d-z]+|[a-\d]|[]a]+|[^]a]+
[]|[a|[z-a]|[a-]+|[-a]+|[a-b-c]+|[^\n]+|[\x{D7FF}-\x{E000}]|[\x{D800}-\x{DFFF}]|[^\x00-\x{10FFFF}]|[^\x00-\x{D7FF}\x{E000}-\x{10FFFF}]|[^\x{D900}-\x{10FFFF}\x00-\x{DA00}]|\x{D800}|[\pL\d]+|[^\PL]+
\<|\>|\<foo|\b{start}|\Q.+\E|\Q.+|\Qa\Eb|\Q\E*|a\Q\E*|\Qab\E*|\E|\0|\012a|\123|\1|\8|\9|\08|\x41|\x4|\x{41}|\x{}|\x{110000}|\x{10FFFF}
\C|\pN|\pL+|\p{Greek}+|\p{^Greek}+|\P{Greek}+|\P{^Greek}+|\p{greek}|\p{Letter}|\p{Alphabetic}|\p{sc=Greek}|\p{Cn}|\p{C}|\p{Cs}|\p{Any}|\p{L&}|\p|\p{|\p{Foo}
(?i)k|(?i)[^k]+|(?i)\w+|(?i)\W+|(?i)[[:lower:]]+|(?i)\p{Lu}+|(?i)\P{Lu}+|(?i)s|(?i)[^\w]|(?i)ſ|(?i)é|(?i)ς|(?-i)k|(?i:a)a|(?i)a(?-i)a|((?i)a)a
(?x)a|(?u)a|(?R)a|(?)a|(?-)a|(?i-)a|(?i-s)a|(?^i)a|(?U)a+|(?U)a+?|(?U:a+)a|(?ims)a|(?imsx)a|(?i|(?i:|(?:|(|)|a)|(a|((a)
(?P<n>a)|(?<n>a)|(?P<n>a)(?P<n>b)|(?P<1>a)|(?P<>a)|(?P<n|(?P=n)|(?P>n)|(?P<é>a)|(?=a)|(?!a)|(?<=a)|(?<!a)|(?#c)|(?>a)|(?R)|(?&n)
\u0041|\U00000041|\Z|\G|\X|\R|\K|\h|\cA|\e|\N|\a|\f|\r|\t|\v|\_|\-|\é|\ |\/|\"|a\|.|\|[\b]|[\C]|[\A]|[\Q]|[\_]|[\-]|[a\-c]+|[\]]
(a+)(b+)|(a|ab)(c|bcd)|a*|a*?|a+?b|x*|(a*)*|(a*)+|(a|b)*?c|.*c|.*?c|[^a]|(?:a|b)+|\w+\b|\b\w|foo\B|é.|.é|[é-ü]+|[^é]+|日本|(?i)ÀÉ
"""
# A | between patterns of the table; \| is one inside of a pattern.
LINES = [
    b"", b"a", b"aa", b"aaa", b"aaaa", b"abc", b"abcd", b"foo", b"foo bar", b"barfoo", b"xfoox", b"a1b22", b"1-9z", b"{start}",
    b"a{2}", b"a{,3}", b"a{ 2 }", b"x{a}", b"a.+b", b".+", b"K", b"\xe2\x84\xaa", b"\xc5\xbf", b"S s", b"A", b"aA Aa", b"[a]", b"&~[",
    b"<foo>", b"\t \r\x0b\x0c", b"\x00", b"\x01\x07\x08", b"S3", b"\xc3\xa9a", b"\xc3\x89", b"\xce\xb1\xce\xb2\xce\xb3", b"\xcf\x82\xcf\x83",
    b"\xe6\x97\xa5\xe6\x9c\xac", b"\xff", b"a\xffb", b"\xf0\x9f\x98\x80", b"_-]", b"]", b"^$", b"\\Q", b"\xc3\xa0\xc3\xa9",
    b"\xee\x80\x80", b"\xed\x9f\xbf", b"a-c", b"  ", b'/"', b"..",
]
PIECES = [
    "a", "b", "K", "s", "1", "_", " ", ".", "é", "ſ", "^", "$", "|", "(", ")", "(?:", "(?i)", "(?i:", "(?-i:", "(?U)", "(?s:", "(?P<n>", "*", "+", "?",
    "{2}", "{1,3}", "{0}", "{2,}", "{", "}", ",", "[", "]", "[^", "-", "&&", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "\\A", "\\z",
    "\\pL", "\\PL", "\\p{Greek}", "\\p{^Lu}", "[:alpha:]", "[[:^digit:]]", "[a-c]", "[^a-c]", "\\x41", "\\x{e9}", "\\101", "\\Q", "\\E", "\\.", "\\",
    "\\1", "\\<", "0", "Q", "E", ":", "=", "<", ">", "x",
]


def table():
    for row in TABLE.strip().split("\n"):
        pattern = ""
        for part in row.split("|"):
            if part.endswith("\\") and not part.endswith("\\\\"):
                pattern += part[:-1] + "|"
                continue
            yield pattern + part
            pattern = ""


def oracle(pattern, line):
    options = re2.Options()
    options.log_errors = False
    try:
        found = re2.compile(pattern.encode(), options).search(line)
    except re2.error:
        return "refused"
    return f"{found.start()} {found.end()}" if found else "none"


def is_known(pattern, answer):
    # Refused here on purpose: a byte of a character, what only a newline matches, and the empty pattern.
    return "\\C" in pattern or "cannot match across lines" in answer or not pattern


def main():
    binary, count, seed = sys.argv[1], int((sys.argv[2:] or ["2000"])[0]), int((sys.argv[3:] or ["1"])[0])
    chance = random.Random(seed)
    patterns = list(table())
    patterns += ["".join(chance.choices(PIECES, k=chance.randint(1, 7))) for _ in range(count)]
    patterns = list(dict.fromkeys(patterns))
    cases = [(pattern, line) for place, pattern in enumerate(patterns) for line in (LINES if place < 400 else chance.sample(LINES, 6))]
    asked = "".join(f"{pattern.encode().hex()}\t{line.hex()}\n" for pattern, line in cases)
    answers = subprocess.run([binary], input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(answers) == len(cases)
    different, seen = 0, set()
    for (pattern, line), answer in zip(cases, answers):
        expect, short = oracle(pattern, line), answer.split(":")[0]
        if expect != short and pattern not in seen and not is_known(pattern, answer):
            seen.add(pattern)
            different += 1
            print(f"{pattern!r} on {line!r}: re2 {expect}, here {answer}")
    print(f"{len(patterns)} patterns, {len(cases)} cases, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
