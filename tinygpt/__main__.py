"""`python -m tinygpt` is the command `tinygpt`."""

import sys


def main() -> None:
    try:
        from tinygpt.cli import app  # here, because PyTorch takes a second to import, and Ctrl-C may come in it

        app()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
