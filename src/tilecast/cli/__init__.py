"""The `tilecast` command: one file a verb, no logic of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: what follows `tilecast`; None takes the process's own.

    Returns:
        0 answered, 1 answered with no, 2 bad input or a missing extra, 130 interrupted.
    """
    import click

    from tilecast.cli.app import app
    from tilecast.errors import TilecastError

    try:
        code = app(args=arguments, standalone_mode=False, prog_name="tilecast")
        return code if isinstance(code, int) else 0
    except TilecastError as error:
        return _refuse(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 2
    except click.ClickException as error:
        return _refuse(error.format_message(), 2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _refuse("interrupted", 130)
    except BrokenPipeError:
        # the reader of a pipe left (`| head`): not our error, and nothing more to say
        sys.stderr.close()
        return 0
    except MemoryError:
        return _refuse("out of memory: the input is too large for this machine", 2)


def _refuse(text: str, code: int) -> int:
    print("tilecast: " + " ".join(text.split()), file=sys.stderr)
    return code


def run() -> None:
    """Entry point of the console script."""
    sys.exit(main())
