"""A directory: the names programs see, and those a power failure would leave.

Creations, renames and removals reach the disk in their order, when the directory is synced
or by themselves at any later moment. Syncing a file does not make its name durable, and
syncing a directory does not make the directory's own name durable: POSIX promises neither,
so nothing here may rely on what some file systems do.

Each change carries the number it has among all changes of names on the disk. A power failure
keeps the changes up to a number: one for the whole disk, as with a journaling file system,
or one for each directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ottla.sim.disk.inode import Inode

Child: TypeAlias = "Inode | Directory"


class Renaming(NamedTuple):
    """Names that got another child, or none, at once."""

    number: int
    names: tuple[tuple[str, Child | None], ...]


class Directory:
    """One directory, which knows its children but not its own name."""

    __slots__ = ("durable", "live", "unsynced")

    def __init__(self) -> None:
        self.live: dict[str, Child] = {}
        self.durable: dict[str, Child] = {}
        self.unsynced: list[Renaming] = []

    def change(self, number: int, *names: tuple[str, Child | None]) -> None:
        """Change names, all of them or none."""
        renaming = Renaming(number, names)
        _apply(self.live, renaming)
        self.unsynced.append(renaming)

    def sync(self) -> None:
        """Make the visible names durable: they survive a power failure."""
        self.keep_up_to(self.unsynced[-1].number if self.unsynced else 0)

    def keep_up_to(self, number: int) -> None:
        """Make changes up to a number durable."""
        kept = 0
        for renaming in self.unsynced:
            if renaming.number > number:
                break
            _apply(self.durable, renaming)
            kept += 1
        del self.unsynced[:kept]

    def revert(self) -> None:
        """Forget every change that has not reached the disk."""
        self.live = dict(self.durable)
        self.unsynced.clear()

    def below(self) -> Iterator[Directory]:
        """Return this directory and all below it, removed ones included."""
        yield self
        children = [*self.live.values(), *self.durable.values()]
        for renaming in self.unsynced:
            children += [child for _, child in renaming.names if child is not None]
        for child in {id(child): child for child in children}.values():
            if isinstance(child, Directory):
                yield from child.below()


def _apply(names: dict[str, Child], renaming: Renaming) -> None:
    for name, child in renaming.names:
        if child is None:
            names.pop(name, None)
        else:
            names[name] = child
