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
    import typer

    from tilecast.cli.app import app
    from tilecast.errors import TilecastError

    try:
        code = app(args=arguments, standalone_mode=False, prog_name="tilecast")
        return code if isinstance(code, int) else 0
    except TilecastError as error:
        return _refuse(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _refuse("interrupted", 130)
    except BrokenPipeError:
        # the reader of a pipe left (`| head`): not our error, and nothing more to say
        sys.stderr.close()
        return 0
    except MemoryError:
        return _refuse("out of memory: the input is too large for this machine", 2)
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            raise
        return _refuse(usage, 2) if usage else 2


def _usage_error(error: Exception) -> str | None:
    """Text of a wrong command line ("" when its help was printed), None of any other error.

    The class that typer raises is click's or, from some release on, its own copy: the base of
    `typer.BadParameter` is right in both.
    """
    import typer

    base = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    if not isinstance(error, base):
        return None
    text = str(getattr(error, "message", "")) if "NoArgs" in type(error).__name__ else ""
    if text:
        print(text)
        return ""
    return str(error.format_message())  # type: ignore[attr-defined]


def _refuse(text: str, code: int) -> int:
    print("tilecast: " + " ".join(text.split()), file=sys.stderr)
    return code


def run() -> None:
    """Entry point of the console script."""
    sys.exit(main())
