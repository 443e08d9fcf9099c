"""Several topics in one `ottla load`: names, expressions, places, rounds."""

from __future__ import annotations

import threading

import pytest

from ottla.cli.errors import DataError, UsageError
from ottla.cli.load.rounds import Rounds, SomeFailed
from ottla.cli.load.topics import check_several, chosen_topics, is_several, placed
from ottla_spark.loads.errors import DataLost, LoadUsageError
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.run.tally import Tally
from ottla_spark.loads.targets.address import parse_address

THERE = ["__consumer_offsets", "orders", "orders.eu", "orders.us", "users"]


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("orders,users", ["orders", "users"]),
        ("users, orders,users", ["users", "orders"]),
        (r"orders\..*", ["orders.eu", "orders.us"]),
        ("o.*,users", ["orders", "orders.eu", "orders.us", "users"]),
        (".*", ["orders", "orders.eu", "orders.us", "users"]),
        ("new,(order|user)s", ["new", "orders", "users"]),
    ],
)
def test_names_and_expressions(text: str, topics: list[str]) -> None:
    assert is_several(text)
    assert chosen_topics(text, THERE) == topics


def test_one_name_is_one_topic() -> None:
    assert not is_several("orders.eu-1_2")
    assert placed("delta:/lake/{topic}", "orders") == "delta:/lake/orders"


def test_nothing_and_nonsense_are_refused() -> None:
    with pytest.raises(DataError, match="no topic matches"):
        chosen_topics("x.*", THERE)
    with pytest.raises(UsageError, match="regular expression"):
        chosen_topics("(", THERE)


@pytest.mark.parametrize(
    ("to", "dead_letters", "checkpoint", "wrong"),
    [
        ("parquet:/lake", None, None, "--to"),
        ("delta:/lake", "parquet:/dead", None, "--dead-letters"),
        ("delta:/lake", None, "/checkpoint", "--checkpoint"),
    ],
)
def test_one_place_for_several_topics_is_refused(
    to: str, dead_letters: str | None, checkpoint: str | None, wrong: str
) -> None:
    with pytest.raises(UsageError, match=f"{wrong} .*{{topic}}"):
        check_several(to, dead_letters, checkpoint)
    check_several("delta:/lake", "topic:dead", None)


def result(topic: str, records: int) -> LoadResult:
    return LoadResult(LoadOptions(topic, parse_address("delta:/t"), {}), 2.0, Tally(records))


def test_a_failed_topic_does_not_keep_the_others_from_being_loaded() -> None:
    said: list[str] = []

    def load(topic: str) -> LoadResult:
        if topic == "b":
            raise DataLost("records are gone")
        if topic == "c":
            raise LoadUsageError("wrong")
        return result(topic, 4)

    rounds = Rounds(load, said.append, threading.Event())
    with pytest.raises(SomeFailed, match="2 of the topics failed: b, c") as raised:
        rounds.run(lambda: ["a", "b", "c", "d"], None)
    assert raised.value.exit_code == DataLost.exit_code
    assert said == ["b: records are gone", "c: wrong"]
    assert list(rounds.results) == ["a", "d"]


def test_rounds_add_up_until_they_are_stopped() -> None:
    stop = threading.Event()
    names = iter([["a"], ["a", "b"]])

    def load(topic: str) -> LoadResult:
        if topic == "b":
            stop.set()
            raise KeyboardInterrupt  # as a load does that was stopped before its end
        return result(topic, 4)

    rounds = Rounds(load, print, stop)
    rounds.run(lambda: next(names), 0.001)
    assert rounds.results["a"]["records"] == 8
    assert rounds.results["a"]["records_per_second"] == 2.0
    stopped = Rounds(load, print, stop)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(lambda: ["a"], None)


@pytest.mark.parametrize(
    ("dead_letters", "topics"),
    [
        ("topic:bad", ["orders", "orders-bad", "orders-bad-bad", "users"]),
        ("topic:{topic}-bad", ["bad", "orders", "users"]),
        ("delta:/lake/bad", ["bad", "orders", "orders-bad", "orders-bad-bad", "users"]),
    ],
)
def test_an_expression_leaves_dead_letters_out(dead_letters: str, topics: list[str]) -> None:
    there = ["bad", "orders", "orders-bad", "orders-bad-bad", "users"]
    assert chosen_topics(".*", there, dead_letters) == topics
    assert chosen_topics("bad,orders-bad", there, dead_letters) == ["bad", "orders-bad"]
