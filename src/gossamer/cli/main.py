"""The command `gossamer`: dispatches, and turns every failure into one line and the right exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gossamer.cli.lineup import LazyGroup
from gossamer.cli.terminal import say, say_rendered
from gossamer.errors import GossamerError, OutputClosed
from gossamer.version import VERSION

_BUG = 1
_DOTENV = Path(".env")


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="gossamer")
def cli() -> None:
    """Crawl websites: crash-safe, polite, and with an answer for every URL."""
    if os.path.lexists(_DOTENV):
        from gossamer.config.dotenv import use_dotenv  # noqa: PLC0415 - few working folders have such a file

        use_dotenv(_DOTENV, os.environ)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        result = cli.main(args=arguments, prog_name="gossamer", standalone_mode=False)
    except (BrokenPipeError, OutputClosed):
        _silence_stdout()
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        say_rendered(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except (GossamerError, click.ClickException) as error:
        return _fail(_one_line(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last boundary: a bug becomes exit code 1
        if "-v" in sys.argv or "--verbose" in sys.argv:
            import traceback  # noqa: PLC0415 - for bugs alone

            for line in traceback.format_exc().rstrip().split("\n"):
                say(f"  {line}")
        return _fail(f"internal error: {type(error).__name__}: {error} (-v shows where)", _BUG)
    return result if isinstance(result, int) else 0


def _silence_stdout() -> None:
    """Forget what is still to be said on a stdout whose reader has left (`| head`): nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: GossamerError | click.ClickException) -> str:
    if isinstance(error, GossamerError):
        return str(error)
    text = error.format_message().replace("\n", " ")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{text} (see `{error.ctx.command_path} --help`)"
    return text


def _fail(message: str, code: int) -> int:
    say(f"gossamer: {message}")
    return code
