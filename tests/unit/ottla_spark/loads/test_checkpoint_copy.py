"""Spark's checkpoint in an object store: a copy on this machine. A directory is the store here."""

from __future__ import annotations

from pathlib import Path

from ottla_spark.loads.state.arrow_storage import ArrowStorage
from ottla_spark.loads.state.checkpoint_copy import CheckpointCopy


def test_changes_are_stored_and_fetched_elsewhere(tmp_path: Path) -> None:
    original = tmp_path / "store"
    first = CheckpointCopy(ArrowStorage(), str(original))
    first.fetch()
    here = Path(first.path)
    for name in ("offsets", "commits"):
        (here / name).mkdir()
    (here / "metadata").write_text("id")
    (here / "offsets" / "0").write_text("plan")
    (here / "offsets" / ".0.crc").write_text("no file of Spark's log")
    first.store()
    (here / "commits" / "0").write_text("done")
    (here / "offsets" / "0").unlink()
    first.store()
    first.close()
    assert not here.exists()

    second = CheckpointCopy(ArrowStorage(), str(original))
    second.fetch()
    found = {str(p.relative_to(second.path)) for p in Path(second.path).rglob("*") if p.is_file()}
    assert found == {"metadata", "commits/0"}
    second.close()


def test_a_plan_is_stored_before_a_commit(tmp_path: Path) -> None:
    written: list[str] = []

    class Notes(ArrowStorage):
        def write_bytes(self, path: str, content: bytes) -> None:
            written.append(path.removeprefix(f"{tmp_path}/store/"))

    copy = CheckpointCopy(Notes(), f"{tmp_path}/store")
    for name in ("commits/1", "offsets/1", "metadata", "offsets/2"):
        place = Path(copy.path, name)
        place.parent.mkdir(exist_ok=True)
        place.write_text(name)
    copy.store()
    copy.store()
    copy.close()
    assert written == ["metadata", "offsets/1", "offsets/2", "commits/1"]
