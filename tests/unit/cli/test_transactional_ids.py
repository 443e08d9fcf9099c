"""`ottla transactions list` and `describe`: what they print, and which options they refuse."""

from __future__ import annotations

import pytest

from ottla.cli.main import main
from ottla.cli.sizes import time_text
from ottla.cli.transactions.view import description_as_json, listing_as_json, print_description
from ottla.client.transactions.transactional_ids import TransactionDescription, TransactionListing
from ottla.model.ids import TopicPartition

DESCRIBED = TransactionDescription(
    "payments", 1, 4001, 2, "Ongoing", 60_000, 5, [TopicPartition("events", 0)]
)


def test_a_description_names_the_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    print_description(DESCRIBED)
    headline, _, row = capsys.readouterr().out.splitlines()
    assert headline.split("  ") == [
        *("payments", "Ongoing", "producer 4001", "epoch 2", "coordinator 1"),
        *("timeout 60000 ms", f"started {time_text(5)}"),
    ]
    assert row.split() == ["events", "0"]
    assert description_as_json(DESCRIBED)["partitions"] == ["events-0"]
    assert description_as_json(DESCRIBED)["started_ms"] == 5


def test_an_id_without_a_transaction_has_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    print_description(DESCRIBED._replace(state="Empty", started_ms=None, partitions=[]))
    assert capsys.readouterr().out.count("started") == 0


def test_a_listing_as_json() -> None:
    assert listing_as_json(TransactionListing("payments", 1, 4001, "Empty")) == {
        "transactional_id": "payments",
        "state": "Empty",
        "producer_id": 4001,
        "coordinator": 1,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("transactions list --state Busy", "should be one of Empty, Ongoing"),
        ("transactions list --longer-than soon", "--longer-than"),
        ("transactions describe", "--transactional-id"),
    ],
)
def test_mistakes_are_told(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err
