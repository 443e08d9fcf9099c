"""The table of commands, and how errors become messages and exit codes.

An expected error never shows a traceback. Wrong usage ends with exit code 2, a failure or a
broker's error with 1. Both print a line on stderr that says what to do.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

import ottla
from ottla.cli.errors import FAILED, INTERRUPTED, OK, USAGE, DataError, UsageError, complain
from ottla.client.errors import ClientError

_HELP = """Kafka's sister: a commit log that speaks Kafka's protocol, in Python.

Start with `ottla up`. To see the options of a command, add --help. With --verbose, a command
also shows on stderr what it asks which broker, and a traceback if it fails unexpectedly.
"""
VERBOSE = "--verbose"
_OWN_VERBOSE = frozenset({"up", "broker", "load", "pipeline"})
"""Commands with a --verbose of their own."""
_HELP_FLAGS = frozenset({"--help", "-h"})
_UNWRAPPED = 500
_COMMANDS = {
    "up": "ottla.cli.broker:up",
    "broker": "ottla.cli.broker:broker",
    "topics": "ottla.cli.topics.command:topics",
    "groups": "ottla.cli.groups.command:groups",
    "transactions": "ottla.cli.transactions.command:transactions",
    "configs": "ottla.cli.configs.command:configs",
    "cluster": "ottla.cli.cluster:cluster",
    "brokers": "ottla.cli.brokers:brokers",
    "quorum": "ottla.cli.quorum:quorum",
    "features": "ottla.cli.features:features",
    "reassign": "ottla.cli.reassign.command:reassign",
    "elect-leaders": "ottla.cli.elections:elect_leaders_command",
    "leaders": "ottla.cli.elections:leaders",
    "log-dirs": "ottla.cli.log_dirs:log_dirs",
    "compact": "ottla.cli.compact:compact",
    "erase": "ottla.cli.erase.command:erase",
    "tier": "ottla.cli.tier.command:tier",
    "produce": "ottla.cli.produce.command:produce",
    "consume": "ottla.cli.consume.command:consume",
    "load": "ottla.cli.load.command:load",
    "pipeline": "ottla.cli.pipeline:pipeline",
    "dump-log": "ottla.cli.dump_log.command:dump_log",
    "sim": "ottla.cli.sim:sim",
    "completion": "ottla.cli.completion:completion",
}


def build_app(*, whole: bool) -> App:
    """Return the `ottla` command. Unless `whole`, each command is imported only when it runs."""
    app = App(
        name="ottla",
        help=_HELP,
        version=ottla.__version__,
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for place, (name, path) in enumerate(_COMMANDS.items()):
        app.command(path, name=name, sort_key=place)
        if whole:
            app[name]  # import it, so that the overview can describe it
    return app


def run(words: list[str]) -> int:
    """Run one command line and return its exit code."""
    words = _without_verbose(words)
    app = build_app(whole=not words or words[0] not in _COMMANDS)
    if not sys.stdout.isatty() and _shows_help(words):
        _help_in_plain_lines(app)
    try:
        result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()  # here, so that a closed pipe is noticed
    except CycloptsError as error:
        complain(f"{_mistake(error)} See `{_help_command(error)}`.")
        return USAGE
    except UsageError as error:
        complain(str(error))
        return USAGE
    except (ClientError, DataError) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return OK
    return result if isinstance(result, int) else OK


def _without_verbose(words: list[str]) -> list[str]:
    """Return the words without --verbose. If it is there, show what the client does."""
    if VERBOSE not in words or _OWN_VERBOSE.intersection(words[:1]):
        return words
    import logging

    form = "%(asctime)s %(message)s"
    logging.basicConfig(stream=sys.stderr, format=form, level=logging.WARNING)
    logging.getLogger("ottla").setLevel(logging.DEBUG)
    return [word for word in words if word != VERBOSE]


def _shows_help(words: list[str]) -> bool:
    """Return True if this prints help: on request, or for a command without its subcommand."""
    return len(words) <= 1 or not _HELP_FLAGS.isdisjoint(words)


def _help_in_plain_lines(app: App) -> None:
    """Print help without boxes and without wrapping lines, for pipes and files."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with exit code 1

    app.help_format = "plaintext"
    app.help_formatter = "plain"
    app.console = PipeConsole(width=_UNWRAPPED)


def silence_stdout() -> None:
    """Redirect stdout to /dev/null after its reader closed the pipe, so that later writes work."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mistake(error: CycloptsError) -> str:
    """Return what is wrong with a command line, in plain words."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"Unexpected argument: {' '.join(error.unused_tokens)}."
    return str(error)


def _help_command(error: CycloptsError) -> str:
    return " ".join(("ottla", *(error.command_chain or ()), "--help"))
