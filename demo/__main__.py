"""Entry point of `python -m demo`, which `make demo` runs."""

from __future__ import annotations

import argparse
import os

from demo import tour
from destination_s3_spark import cli

DEFAULT_RECORDS = 50_000


def main() -> None:
    """Run the demo and exit with its code, by os._exit for the reason that the connector has."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="See the connector work, without an account or a bucket. Starts an S3 server on this machine, syncs a made-up shop's "
        "data into it with the connector, and shows the tables, the values that did not fit their type, and the chain of blocks. Takes "
        "less than a minute and leaves nothing behind but a page about the tables.",
    )
    parser.add_argument("--records", type=_positive, default=DEFAULT_RECORDS, help="how many records to send (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="another number makes another shop (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the S3 server running and say how to read the tables")
    options = parser.parse_args()
    after = tour.After.KEEP if options.keep else tour.After.STOP
    os._exit(cli.run(lambda: tour.run(options.records, options.seed, after)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


if __name__ == "__main__":
    main()
