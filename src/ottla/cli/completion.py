"""`ottla completion`: scripts that let a shell complete commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from ottla.cli.errors import OK

Shell = Literal["bash", "zsh", "fish"]


def completion(
    shell: Annotated[Shell, Parameter(name="--shell", help="The shell: bash, zsh or fish.")],
) -> int:
    """Print a script that completes commands and options in a shell.

    bash: add `source <(ottla completion bash)` to ~/.bashrc. zsh: write it to a file `_ottla` in a
    directory of $fpath. fish: write it to ~/.config/fish/completions/ottla.fish.
    """
    from ottla.cli.app import build_app

    print(build_app(whole=True).generate_completion(shell=shell))
    return OK
