"""Entry point of the console script, of `python -m destination_s3_spark` and of the image."""

from __future__ import annotations

import sys


def main() -> None:
    """Run an Airbyte command (spec, check, write) or an operator command (demo, inspect, repair) and exit with its code."""
    argv = sys.argv[1:]
    from destination_s3_spark import cli  # noqa: PLC0415 (each branch imports only what it needs: spec must start fast)

    if argv and argv[0] in cli.OPERATOR_COMMANDS:
        sys.exit(cli.operator_command(argv))
    from destination_s3_spark.destination import DestinationS3Spark  # noqa: PLC0415

    sys.exit(DestinationS3Spark().launch(argv))


if __name__ == "__main__":
    main()
