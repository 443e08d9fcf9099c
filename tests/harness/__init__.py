"""What the tests with real clients stand on: one shape for three client libraries, a raw
connection that speaks through kio (never through Ottla's own codecs), and broker processes."""

from __future__ import annotations

import logging
import warnings

# kafka-python 3.0 reads its schemas, while it is imported, by deprecated functions.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka  # noqa: F401

# A broker that is stopped on purpose is no news; what matters reaches the test as an error.
for _client in ("kafka", "aiokafka"):
    logging.getLogger(_client).setLevel(logging.CRITICAL + 1)
