"""Entry point of the console script, of `python -m destination_s3_spark` and of the image."""

from __future__ import annotations

import os
import signal
import sys

EXIT_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Run an Airbyte command (spec, check, write) or an operator command (`cli.OPERATOR_COMMANDS`) and exit with its code."""
    argv = sys.argv[1:]
    from destination_s3_spark import cli  # noqa: PLC0415 (each branch imports only what it needs: spec must start fast)

    if argv and argv[0] in cli.OPERATOR_COMMANDS:
        sys.exit(cli.operator_command(argv))
    if argv[:1] == ["write"]:
        from destination_s3_spark import process  # noqa: PLC0415

        sys.exit(process.write(argv[1:]))
    # The kernel keeps a signal without a handler from process 1 of a container. A sync has a handler of its own.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_TERMINATED))
    from destination_s3_spark.destination import DestinationS3Spark  # noqa: PLC0415

    sys.exit(DestinationS3Spark().launch(argv))


if __name__ == "__main__":
    main()
