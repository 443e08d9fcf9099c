"""`ottla completion`: scripts that let a shell complete commands and options."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from cyclopts import Parameter

from ottla.cli.errors import OK

Shell = Literal["bash", "zsh", "fish"]

_ZSH_FUNCTION = "_cyclopts_ottla"
_ZSH_END = f"""
if [[ $funcstack[1] == _ottla ]]; then
  {_ZSH_FUNCTION} "$@"
else
  compdef {_ZSH_FUNCTION} ottla
fi
"""
"""Completes at once if zsh has loaded the script from $fpath; else registers the function."""
_ZSH_VALUE = re.compile(r"( +'(?:[0-9*]|[^\[]*\[.*\]):(?:\\.|'\\''|[^:'\\])+)' \\")
_BASH_END = "complete -F _ottla ottla"


def completion(
    shell: Annotated[Shell, Parameter(name="--shell", help="The shell: bash, zsh or fish.")],
) -> int:
    """Print a script that completes commands and options in a shell.

    bash: add `source <(ottla completion bash)` to ~/.bashrc. zsh: write it to a file `_ottla` in a
    directory of $fpath, or source it in ~/.zshrc after compinit. fish: write it to
    ~/.config/fish/completions/ottla.fish.
    """
    from ottla.cli.app import build_app

    script = build_app(whole=True).generate_completion(shell=shell)
    if shell == "zsh":
        assert f"{_ZSH_FUNCTION}()" in script
        script = _with_files(script) + _ZSH_END
    elif shell == "fish":
        script = _without_files(script)
    else:
        assert _BASH_END in script
        script = script.replace(_BASH_END, _BASH_END.replace("-F", "-o default -F"))
    print(script)
    return OK


def _with_files(script: str) -> str:
    """Let zsh complete file names where a command has no values to offer, as bash and fish do.

    If zsh has nothing to offer for an argument, it does not complete options either.
    """
    lines = (_ZSH_VALUE.fullmatch(line) for line in script.splitlines())
    return "\n".join(
        f"{match[1]}:_files' \\" if match else line
        for match, line in zip(lines, script.splitlines(), strict=True)
    )


def _without_files(script: str) -> str:
    """Let fish offer no names of files where a command is expected."""
    return "\n".join(
        f"{line} -f" if line.startswith("complete ") and " -a '" in line else line
        for line in script.splitlines()
    )
