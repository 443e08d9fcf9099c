"""The model must notice what a broker must never do: each test breaks one promise."""

from __future__ import annotations

from random import Random

import pytest

from ottla.records.batch import parse_header
from ottla.records.record import build_batch
from ottla.sim.model.batch import Fate, Producer, Sent, damaged, make_sent
from ottla.sim.model.partition import End, PartitionModel
from ottla.sim.model.sequences import SequenceModel, Verdict
from ottla.sim.network.exchange import Violation


def sent(uid: int, count: int = 1, producer: Producer | None = None) -> Sent:
    chance = Random(uid)
    while True:
        made = make_sent(uid, chance, 1000, most_records=count, most_bytes=5, producer=producer)
        if made.count == count:
            return made


def see(model: PartitionModel, what: Sent, base_offset: int, uid: int | None = None) -> None:
    """Let a reader get the batch at an offset."""
    data = bytearray(what.payload)
    data[:8] = base_offset.to_bytes(8, "big")
    sents = {what.uid if uid is None else uid: what}
    model.see(sents, parse_header(data, 0), bytes(data))


def model_with(*sents: Sent) -> PartitionModel:
    """Return a partition that has acknowledged these, one after the other."""
    model, offset = PartitionModel("t-0"), 0
    for each in sents:
        model.acknowledge(each, offset, -1)
        offset += each.count
    model.settled(flushes=False)
    return model


def test_what_was_acknowledged_may_be_read() -> None:
    first, second = sent(1, 3), sent(2)
    model = model_with(first, second)
    see(model, first, 0)
    see(model, second, 3)
    assert (model.end, first.fate, second.offset) == (4, Fate.ACKED, 3)


def test_an_offset_is_given_once() -> None:
    model = model_with(sent(1, 3))
    with pytest.raises(Violation, match="has 3 already"):
        model.acknowledge(sent(2), 2, -1)


def test_offsets_have_no_holes() -> None:
    model = model_with(sent(1))
    with pytest.raises(Violation, match="nobody wrote"):
        model.acknowledge(sent(2), 5, -1)


def test_batches_of_unknown_fate_may_fill_a_gap() -> None:
    model, unanswered = model_with(sent(1)), sent(3, 2)
    model.doubt(unanswered)
    model.acknowledge(sent(2), 3, -1)
    see(model, unanswered, 1)
    assert unanswered.fate is Fate.ACKED


def test_what_was_refused_is_not_there() -> None:
    model, refused = model_with(sent(1)), sent(2)
    model.refuse(refused)
    with pytest.raises(Violation, match="was refused and is at 1"):
        see(model, refused, 1)


def test_a_batch_is_there_once() -> None:
    first = sent(1)
    model = model_with(first)
    with pytest.raises(Violation, match="again at 1"):
        see(model, first, 1)


def test_an_acknowledged_offset_keeps_its_batch() -> None:
    model, other = model_with(sent(1)), sent(2)
    with pytest.raises(Violation, match="was at 0, now"):
        see(model, other, 0)


def test_records_are_as_they_were_sent() -> None:
    first = sent(1)
    model = model_with(first)
    data = bytes(build_batch([(b"key-0", b"1.0.other", 1000, ())]))
    with pytest.raises(Violation, match="other records"):
        model.see({1: first}, parse_header(data, 0), data)


def test_garbage_is_not_a_batch_of_anybody() -> None:
    model = model_with(sent(1))
    data = bytes(build_batch([(None, b"garbage", 1000, ())], base_offset=1))
    with pytest.raises(Violation, match="nobody sent"):
        model.see({}, parse_header(data, 0), data)


def test_after_a_power_failure_the_rest_is_forgotten_and_its_offsets_are_free() -> None:
    first, lost = sent(1), sent(2)
    model = model_with(first, lost)
    model.cut(1)
    assert lost.fate is Fate.LOST
    model.acknowledge(sent(3), 1, -1)
    with pytest.raises(Violation):
        see(model, lost, 1)


@pytest.mark.parametrize("forced_end", [0, 1])
def test_what_was_cut_off_may_take_the_place_of_what_a_power_failure_took(forced_end: int) -> None:
    first, full, third = sent(1), sent(2, 2), sent(3, 3)
    model = model_with(first)
    model.take_back(full)
    model.acknowledge(third, 1, -1)
    model.settled(flushes=False)
    model.durable_end = forced_end
    model.ended(End.POWER)
    see(model, first, 0)
    see(model, full, 1)
    assert (model.end, full.fate, third.fate) == (3, Fate.ACKED, Fate.LOST)


def test_what_was_cut_off_may_be_shorter_than_what_a_power_failure_took() -> None:
    first, full, third = sent(1), sent(2), sent(3, 3)
    model = model_with(first)
    model.take_back(full)
    model.acknowledge(third, 1, -1)
    model.settled(flushes=False)
    model.ended(End.POWER)
    model.cut_back(2)
    see(model, full, 1)
    assert (model.end, full.fate, third.fate) == (2, Fate.ACKED, Fate.LOST)


def test_what_was_forced_to_disk_does_not_make_way() -> None:
    first, full, third = sent(1), sent(2, 2), sent(3, 3)
    model = model_with(first)
    model.take_back(full)
    model.acknowledge(third, 1, -1)
    model.settled(flushes=True)
    model.ended(End.POWER)
    with pytest.raises(Violation, match="was at 1"):
        see(model, full, 1)


def test_what_was_not_found_may_come_back_with_what_was_removed() -> None:
    first, open_one = sent(1), sent(2)
    model = model_with(first)
    model.doubt(open_one)
    model.move_start(2)
    model.resolve()
    assert open_one.fate is Fate.REFUSED
    model.ended(End.POWER)
    see(model, open_one, 1)
    assert open_one.fate is Fate.ACKED


def test_a_log_cannot_end_inside_a_batch() -> None:
    model = model_with(sent(1, 3))
    with pytest.raises(Violation, match="middle of a batch"):
        model.cut(2)


def test_removed_records_may_come_back_after_a_crash_but_only_as_they_were() -> None:
    first, second, other = sent(1), sent(2), sent(3)
    model = model_with(first, second)
    model.move_start(1)
    assert first.fate is Fate.DELETED
    see(model, first, 0)
    model = model_with(sent(1), sent(2))
    model.move_start(1)
    model.doubt(other)
    with pytest.raises(Violation, match="removed batch"):
        see(model, other, 0)


def test_flushed_topics_promise_durability_with_every_acknowledgement() -> None:
    model = PartitionModel("t-0")
    model.acknowledge(sent(1, 2), 0, -1)
    model.settled(flushes=True)
    assert model.durable_end == 2


@pytest.mark.parametrize("seed", range(20))
def test_damaged_batches_say_what_must_be_answered(seed: int) -> None:
    whole = sent(1)
    broken = damaged(whole, Random(seed))
    assert broken.payload != whole.payload
    assert broken.refusals


def sequence(base: int, epoch: int = 0) -> Sent:
    return sent(base + 1000 * epoch, 1, Producer(5, epoch, base))


def test_the_next_sequence_is_new_and_the_last_five_are_duplicates() -> None:
    state = SequenceModel()
    batches = [sequence(number) for number in range(7)]
    for batch in batches:
        assert state.judge(batch) is Verdict.NEW
        state.append(batch)
    assert [state.judge(batch) for batch in batches] == (
        [Verdict.OUT_OF_ORDER] * 2 + [Verdict.DUPLICATE] * 5
    )
    assert state.judge(sequence(9)) is Verdict.OUT_OF_ORDER


def test_sequences_wrap() -> None:
    state = SequenceModel()
    state.append(sequence(2**31 - 1))
    assert state.judge(sequence(0)) is Verdict.NEW


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    state = SequenceModel()
    state.append(sequence(3))
    assert state.judge(sequence(4, epoch=1)) is Verdict.OUT_OF_ORDER
    assert state.judge(sequence(0, epoch=1)) is Verdict.NEW
    state.append(sequence(0, epoch=1))
    assert state.judge(sequence(4)) is Verdict.FENCED


def test_in_doubt_anything_goes_until_five_batches_are_known_again() -> None:
    state = SequenceModel()
    state.append(sequence(0))
    state.doubt()
    assert state.judge(sequence(0)) is Verdict.ANY
    for number in range(1, 5):
        state.append(sequence(number))
    assert state.judge(sequence(0)) is Verdict.ANY
    state.append(sequence(5))
    assert state.judge(sequence(0)) is Verdict.OUT_OF_ORDER


def test_a_batch_whose_producer_was_forgotten_may_be_there_twice_if_a_crash_kept_it_open() -> None:
    batch = sent(1, 2, Producer(7, 0, 0))
    model = model_with(batch)
    model.doubt_doubled(batch)
    assert model.open_records == 2
    see(model, batch, 2)
    model.resolve()
    assert (model.end, batch.fate, batch.told) == (4, Fate.ACKED, {0, 2})
