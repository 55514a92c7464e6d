"""Greets the people named on the command line."""

import sys

from greeting import greeting


def main(names: list[str]) -> None:
    for name in names or ["everybody"]:
        print(greeting(name))


if __name__ == "__main__":
    # TODO: read names from a file too
    main(sys.argv[1:])
