"""Reading ranges of offsets as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark_ottla.modules import set_modules_aside
from pyspark_ottla.ranges import OffsetRange
from pyspark_ottla.read_settings import ReadSettings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("ReadSettings", "read_ranges")


def read_ranges(ranges: Sequence[OffsetRange], settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Every record of the ranges, in offset order within each, and nothing else.

    Control records are left out, and with `read_committed` aborted transactions; gaps are
    allowed (compaction). Ends when every range is covered. Offsets that are gone raise DataLoss,
    or are warned about when `fail_on_data_loss` is false. A failure of the cluster that does not
    pass within the request timeout raises ClientError.
    """
    # Planning never comes here: the compiled loops are loaded where records are decoded.
    from pyspark_ottla.decode import Decoder
    from pyspark_ottla.fetching import RangeFetcher

    decoder = Decoder(settings.columns, check_crcs=settings.check_crcs)
    with (
        settings.client.connect() as client,
        closing(RangeFetcher(client, ranges, settings)) as fetcher,
    ):
        for section in fetcher.sections():
            yield from decoder.decode(section)
    last = decoder.finish()
    if last is not None:
        yield last
    set_modules_aside("reading")
