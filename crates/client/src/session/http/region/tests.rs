//! Tests of who fetches or sends what.

use std::time::Duration;

use super::{pieces::SENT_BYTES_MAX, *};

/// That a lane reads next.
const CHUNK: u64 = HALF_BYTES_MIN;
const ROUND_TRIP: Duration = Duration::from_millis(50);

const MIB: u64 = 1 << 20;

/// What a relay has room for.
const ROOM: u64 = 128 << 20;

/// A region whose first lane has a piece of [`LANE_BYTES_MIN`], and lane 1 none.
async fn begun(room: u64) -> Region {
    let region = Region::new(0, Some(1 << 30), room, ROUND_TRIP);
    assert_eq!(region.want(2), [0, 1]);
    assert_eq!(region.take(0).await.unwrap().end, Some(LANE_BYTES_MIN));
    assert_eq!(region.state.lock().hand_out(1), None, "of which version?");
    region.begun(0, Some(Validator::Date(String::new())), true);
    region
}

fn bytes_of(ranges: &RangeSet) -> u64 {
    ranges.iter().map(|range| range.len()).sum()
}

/// So many bytes of the lane's piece are on their way; where it ends.
fn sent(region: &Region, lane: usize, at: u64, next: u64) -> u64 {
    let state = region.state.lock();
    let start = state.active[state.position(lane).unwrap()].start;
    drop(state);
    region.sent(lane, start, (at, next)).unwrap()
}

#[tokio::test]
async fn a_slow_lane_loses_the_later_half_of_its_piece_to_one_that_waits() {
    let region = begun(ROOM).await;
    let mut end = LANE_BYTES_MIN;
    let half = loop {
        let piece = region.take(1).await.unwrap();
        if piece.start < LANE_BYTES_MIN {
            break piece;
        }
        assert_eq!(piece.start, end);
        end = piece.end.unwrap();
        region.written(1, end - piece.start);
        region.done(1, false);
    };
    assert!(end > ROOM - ROOM / 4);
    assert_eq!(
        (half.start, half.end),
        (LANE_BYTES_MIN / 2, Some(LANE_BYTES_MIN))
    );
    assert!(!half.is_rest && region.end_of(0) == Some(half.start));
    region.written(1, half.end.unwrap() - half.start);
    region.done(1, false);
    // What is small is waited for.
    region.written(0, half.start - HALF_BYTES_MIN);
    let waits = tokio::time::timeout(Duration::from_millis(20), region.take(1));
    assert!(waits.await.is_err());
    region.written(0, HALF_BYTES_MIN);
    region.done(0, false);
    assert_eq!(region.take(1).await.unwrap().start, end);
}

#[tokio::test]
async fn pieces_are_as_large_as_their_lane_is_fast() {
    let region = begun(u64::MAX).await;
    let slow = Duration::from_millis(500);
    tokio::time::sleep(slow).await;
    region.written(0, LANE_BYTES_MIN);
    region.done(0, false);
    let piece = region.take(0).await.unwrap();
    let bytes = piece.end.unwrap() - piece.start;
    // As much in 100 round trips, and half of it if this machine stood still.
    assert!((5 * LANE_BYTES_MIN..=10 * LANE_BYTES_MIN).contains(&bytes));
    let quick = region.take(1).await.unwrap();
    region.written(1, quick.end.unwrap() - quick.start);
    region.done(1, false);
    let piece = region.take(1).await.unwrap();
    assert!(piece.end.unwrap() - piece.start > bytes);
}

#[tokio::test]
async fn a_lane_that_had_all_keeps_its_share_when_others_come() {
    let region = Region::new(0, Some(1 << 30), u64::MAX, ROUND_TRIP);
    assert_eq!(region.want(1), [0]);
    assert_eq!(region.take(0).await.unwrap().end, Some(1 << 30));
    region.begun(0, Some(Validator::Date(String::new())), true);
    assert_eq!(region.want(4), [1, 2, 3]);
    assert_eq!(region.end_of(0), Some(1 << 28));
    assert_eq!(region.take(1).await.unwrap().start, 1 << 28);
}

#[tokio::test]
async fn slow_lanes_are_worth_their_connections_for_fewer_bytes() {
    const FILE: u64 = 32 * MIB;
    for (written, lanes) in [(16 * MIB, 4), (64 << 10, 64)] {
        let region = Region::new(0, Some(FILE), u64::MAX, ROUND_TRIP);
        region.want(1);
        region.take(0).await.unwrap();
        region.begun(0, Some(Validator::Date(String::new())), true);
        tokio::time::sleep(3 * ROUND_TRIP).await;
        region.written(0, written);
        assert_eq!(1 + region.want(64).len(), lanes, "after {written} bytes");
    }
}

#[tokio::test]
async fn a_lane_too_many_ends_within_its_piece_and_others_take_the_rest() {
    let region = Region::new(0, Some(1 << 30), u64::MAX, ROUND_TRIP);
    region.want(1);
    region.take(0).await.unwrap();
    region.begun(0, Some(Validator::Date(String::new())), true);
    region.want(2);
    region.take(1).await.unwrap();
    region.written(1, 1 << 20);
    assert!(!region.retires(1), "two are wanted");
    region.want(1);
    assert!(!region.retires(0), "one of them stays");
    assert!(region.retires(1), "the one that came later");
    assert_eq!(region.take(1).await, None);
    region.left(1, None);
    region.written(0, 1 << 29);
    region.done(0, false);
    let rest = region.take(0).await.unwrap();
    assert_eq!(rest.start, (1 << 29) + (1 << 20));
    // It may come back.
    assert_eq!(region.want(2), [1]);
    assert!(region.take(1).await.is_some());
}

#[tokio::test]
async fn the_last_piece_is_divided_but_no_part_that_says_its_length() {
    let region = Region::new(0, Some(8 << 20), u64::MAX, ROUND_TRIP);
    region.want(2);
    assert_eq!(region.take(0).await.unwrap().end, Some(4 << 20));
    region.begun(0, Some(Validator::Date(String::new())), true);
    region.want(2);
    let last = region.take(1).await.unwrap();
    assert_eq!(
        (last.start, last.end, last.is_rest),
        (4 << 20, Some(8 << 20), true)
    );
    region.written(0, 4 << 20);
    region.done(0, false);
    let half = region.take(0).await.unwrap();
    assert_eq!(
        (half.start, half.end, half.is_rest),
        (6 << 20, Some(8 << 20), true)
    );
    assert_eq!(region.end_of(1), Some(6 << 20));
    let sent = Region::of_parts(8 << 20, u64::MAX, ROUND_TRIP, false);
    sent.want(2);
    for lane in [0, 1] {
        assert!(sent.take(lane).await.is_some());
    }
    assert_eq!(sent.state.lock().divide(0), None);
}

#[tokio::test]
async fn a_part_that_says_its_length_is_not_shortened_for_others() {
    let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, false);
    assert_eq!(region.want(1), [0]);
    region.take(0).await.unwrap();
    region.confirmed(0);
    let alone = region.take(0).await.unwrap();
    let bytes = alone.end.unwrap() - alone.start;
    assert_eq!(bytes, SENT_BYTES_MAX, "one request is bounded");
    assert_eq!(region.want(4), [1, 2, 3]);
    assert_eq!(region.end_of(0), alone.end);
    assert_eq!(Some(region.take(1).await.unwrap().start), alone.end);
}

#[tokio::test]
async fn of_an_open_part_a_lane_that_waits_sends_the_later_half() {
    let region = Region::of_parts(8 << 20, u64::MAX, ROUND_TRIP, true);
    region.want(2);
    let slow = region.take(0).await.unwrap();
    region.take(1).await.unwrap();
    assert_eq!(sent(&region, 0, 1 << 20, CHUNK), slow.end.unwrap());
    assert_eq!(sent(&region, 1, 8 << 20, CHUNK), 8 << 20);
    region.confirmed(1);
    let half = region.take(1).await.unwrap();
    let cut = half.start;
    assert_eq!(half.end, slow.end);
    // Of what was not sent yet.
    assert_eq!(cut, (1 << 20) + (3 << 20) / 2);
    assert_eq!(sent(&region, 0, 2 << 20, CHUNK), cut);
    // A connection that was closed before the request came: what others have is not sent again.
    assert_eq!(sent(&region, 0, 0, CHUNK), cut);
    assert_eq!(sent(&region, 0, cut, CHUNK), cut);
    region.confirmed(0);
    assert_eq!(bytes_of(&region.finish().safe), cut + (4 << 20));
}

#[tokio::test]
async fn of_a_slow_lane_all_is_taken_but_the_little_that_it_reads_next() {
    let region = Region::of_parts(8 << 20, u64::MAX, ROUND_TRIP, true);
    region.want(2);
    let slow = region.take(0).await.unwrap();
    let other = region.take(1).await.unwrap();
    sent(&region, 1, other.end.unwrap(), CHUNK);
    region.confirmed(1);
    let (end, chunk) = (slow.end.unwrap(), 32 << 10);
    let left = 6 * chunk;
    sent(&region, 0, end - left, CHUNK);
    assert_eq!(region.state.lock().divide(1), None, "it may read all of it");
    region.state.lock().paces.get_mut(&0).unwrap().began -= Duration::from_secs(9);
    assert_eq!(sent(&region, 0, end - left, chunk), end);
    let taken = region.take(1).await.unwrap();
    assert!(taken.start >= end - left + chunk, "{taken:?}");
    assert_eq!(
        (taken.end, sent(&region, 0, end - left, chunk)),
        (slow.end, taken.start)
    );
}

#[tokio::test]
async fn an_open_part_ends_where_its_lane_is_one_too_many_or_is_late() {
    let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, true);
    region.want(2);
    let first = region.take(0).await.unwrap();
    let second = region.take(1).await.unwrap();
    let (start, end) = (second.start, second.end.unwrap());
    assert_eq!(sent(&region, 1, start + MIB, CHUNK), end);
    region.want(1);
    assert_eq!(sent(&region, 1, start, CHUNK), end, "a part has bytes");
    assert_eq!(sent(&region, 1, start + 2 * MIB, CHUNK), start + 2 * MIB);
    assert_eq!(
        sent(&region, 0, MIB, CHUNK),
        first.end.unwrap(),
        "one of them stays"
    );
    region.confirmed(1);
    assert_eq!(region.take(1).await, None);
    region.left(1, None);
    region.confirmed(0);
    let rest = region.take(0).await.unwrap();
    assert_eq!((rest.start, rest.end), (start + 2 * MIB, Some(end)));
    sent(&region, 0, end, CHUNK);
    region.confirmed(0);
    let long = region.take(0).await.unwrap();
    region.state.lock().paces.get_mut(&0).unwrap().began -= Duration::from_secs(11);
    let cut = long.start + MIB;
    assert_eq!(sent(&region, 0, cut, CHUNK), cut);
    region.confirmed(0);
    assert_eq!(region.take(0).await.unwrap().start, cut);
    assert_eq!(bytes_of(&region.finish().safe), cut);
}

#[tokio::test]
async fn while_one_lane_waits_for_its_answer_another_sends() {
    let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, false).in_grains(8 * MIB);
    region.allow(16);
    assert_eq!(region.want(4), [0, 1, 2, 3]);
    for lane in 0..4 {
        let piece = region.take(lane).await.unwrap();
        sent(&region, lane, piece.start + MIB, CHUNK);
    }
    assert_eq!(region.want(4), [0; 0], "all of them send");
    let end = region.end_of(0).unwrap();
    assert_eq!(sent(&region, 0, end, CHUNK), end);
    assert_eq!(region.want(4), [4]);
    let spare = region.take(4).await.unwrap();
    sent(&region, 4, spare.start + MIB, CHUNK);
    let channels = || region.totals.channels.load(Ordering::Relaxed);
    assert_eq!(channels(), 4, "one of five waits");
    region.confirmed(0);
    assert_eq!(region.state.lock().hand_out(0), None, "four send");
    region.want(2);
    let too_many = |lane: &usize| region.state.lock().is_one_too_many(*lane);
    let slow: Vec<usize> = (0..5).filter(too_many).collect();
    assert_eq!(slow, [3, 4], "the one that has sent a part goes on");
}

#[tokio::test]
async fn there_are_no_more_spares_than_are_allowed_and_none_where_one_was_refused() {
    let waits = |allowed: usize| async move {
        let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, false).in_grains(8 * MIB);
        region.allow(allowed);
        region.want(8);
        for lane in 0..8 {
            let end = region.take(lane).await.unwrap().end.unwrap();
            sent(&region, lane, end, CHUNK);
        }
        region
    };
    for (allowed, spares) in [(0, 0), (8, 0), (9, 1), (64, 4)] {
        assert_eq!(waits(allowed).await.want(8).len(), spares, "{allowed}");
    }
    let region = waits(64).await;
    assert_eq!(region.want(8), [8, 9, 10, 11]);
    let crowded = || Some(Failure::Crowded(Box::new(Failure::lost("no room"))));
    for lane in (8..12).rev() {
        region.left(lane, crowded());
        assert_eq!((region.crowded(), region.want(8)), (None, vec![]), "{lane}");
    }
    region.left(7, crowded());
    assert_eq!((region.crowded(), region.want(8)), (Some(7), vec![]));
}

/// Two parts of which lane 0 has sent one, and lane 1 a little of the other.
async fn with_a_slow_part() -> (Region, Piece) {
    let region = Region::of_parts(16 * MIB, u64::MAX, ROUND_TRIP, false).in_grains(8 * MIB);
    region.want(2);
    let [first, second] = [0, 1].map(|lane| region.take(lane));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    sent(&region, 1, second.start + CHUNK, CHUNK);
    tokio::time::sleep(ROUND_TRIP * 3).await;
    sent(&region, 0, first.start, CHUNK);
    assert!(region.confirmed(0));
    let again = region.take(0).await.unwrap();
    assert_eq!((again.start, again.end), (second.start, second.end));
    assert!(again.is_again);
    (region, again)
}

#[tokio::test]
async fn a_part_that_all_wait_for_is_sent_again_and_counts_once() {
    let (region, again) = with_a_slow_part().await;
    {
        let mut state = region.state.lock();
        assert!(!state.may_repeat(), "no more than twice");
        state.wanted = 3;
        assert_eq!(state.hand_out(0), None);
    }
    assert!(region.confirmed(0));
    region.is_outrun(1).await;
    assert_eq!(region.sent(1, again.start, (again.start, CHUNK)), None);
    assert!(!region.confirmed(1), "its answer came too late");
    assert_eq!(region.take(0).await, None);
    assert_eq!(bytes_of(&region.finish().safe), again.end.unwrap());

    let (region, again) = with_a_slow_part().await;
    assert!(region.confirmed(1));
    region.is_outrun(0).await;
    assert_eq!(bytes_of(&region.finish().safe), again.end.unwrap());
}

#[tokio::test]
async fn of_a_part_that_is_sent_twice_one_may_fail() {
    for (fails, goes_on) in [(0, 1), (1, 0)] {
        let (region, again) = with_a_slow_part().await;
        region.left(fails, Some(Failure::lost("the connection has ended")));
        assert!(!region.has_failed());
        assert!(region.confirmed(goes_on));
        assert_eq!(bytes_of(&region.finish().safe), again.end.unwrap());

        // What came behind was refused.
        let (region, _) = with_a_slow_part().await;
        assert!(region.confirmed(goes_on));
        region.left(fails, Some(Failure::Refused(refusal(), true)));
        assert!(!region.has_failed());

        // A refusal holds for both.
        let (region, _) = with_a_slow_part().await;
        region.left(fails, Some(Failure::Refused(refusal(), true)));
        assert!(region.has_failed());
    }
}

fn refusal() -> Reply {
    super::super::replies::reply(550, "no such upload")
}

#[tokio::test]
async fn what_is_there_once_is_not_sent_again() {
    let region = Region::of_parts(16 * MIB, 64 * MIB, ROUND_TRIP, false).in_grains(8 * MIB);
    region.want(2);
    for lane in [0, 1] {
        region.take(lane).await.unwrap();
    }
    region.confirmed(0);
    assert_eq!(region.take(0).await, None);
}

#[tokio::test]
async fn nothing_is_sent_behind_what_could_not_be_read() {
    let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, false);
    region.want(2);
    let first = region.take(0).await.unwrap();
    region.take(1).await.unwrap();
    region.fail(Failure::lost("it cannot be read"));
    region.left(0, None);
    region.confirmed(1);
    assert_eq!(region.take(1).await, None);
    let moved = region.finish();
    assert!(moved.failure.is_some());
    assert_eq!(moved.safe.iter().next().map(|range| range.start), first.end);
}

#[tokio::test]
async fn what_one_lane_could_not_send_another_sends() {
    let region = Region::of_parts(64 << 20, u64::MAX, ROUND_TRIP, false);
    region.want(2);
    let first = region.take(0).await.unwrap();
    let second = region.take(1).await.unwrap();
    let lost = Failure::lost("no room");
    region.left(1, Some(Failure::Crowded(Box::new(lost))));
    region.confirmed(0);
    let again = region.take(0).await.unwrap();
    assert_eq!((again.start, again.end), (second.start, second.end));
    assert_eq!(region.crowded(), Some(1));
    region.confirmed(0);
    assert_eq!(
        bytes_of(&region.finish().safe),
        second.end.unwrap() - first.start
    );
}

#[tokio::test]
async fn lanes_that_come_later_stay_within_the_window() {
    let region = Region::new(0, Some(1 << 40), ROOM, ROUND_TRIP);
    assert_eq!(region.want(1), [0]);
    assert_eq!(region.take(0).await.unwrap().end, Some(1 << 40));
    region.begun(0, Some(Validator::Date(String::new())), true);
    assert_eq!(region.want(4), [1, 2, 3]);
    for lane in [1, 2, 3] {
        let piece = region.take(lane).await.unwrap();
        assert!(piece.end.unwrap() <= ROOM, "{piece:?}");
    }
}

#[tokio::test]
async fn parts_of_what_passes_stay_within_the_window() {
    let region = Region::of_parts(1 << 40, 8 * MIB, ROUND_TRIP, true);
    assert_eq!(region.want(4), [0, 1, 2, 3]);
    region.take(0).await.unwrap();
    for lane in [1, 2, 3] {
        let piece = tokio::time::timeout(Duration::from_millis(20), region.take(lane)).await;
        let end = piece.map_or(0, |piece| piece.unwrap().end.unwrap());
        assert!(end <= 8 * MIB, "{end}");
    }
}

#[tokio::test]
async fn a_part_that_waits_for_its_answer_holds_no_window_back() {
    let region = Region::of_parts(1 << 40, 8 * MIB, ROUND_TRIP, true);
    region.want(2);
    let end = region.take(0).await.unwrap().end.unwrap();
    sent(&region, 0, end, CHUNK);
    let mut next = end;
    // Far beyond what the window has room for behind the first byte of the first part.
    while next <= 32 * MIB {
        let taken = tokio::time::timeout(Duration::from_secs(9), region.take(1)).await;
        let piece = taken.unwrap().unwrap();
        assert_eq!(piece.start, next);
        next = piece.end.unwrap();
        sent(&region, 1, next, CHUNK);
        region.confirmed(1);
    }
}

#[tokio::test]
async fn what_is_fetched_later_is_asked_for_by_the_version_of_what_is_there() {
    let safe = Arc::new(SafeRanges::of_journal(
        None,
        String::new(),
        Vec::new(),
        10,
        0,
    ));
    let region = || Region::new(0, Some(10), u64::MAX, ROUND_TRIP).recorded_in(Some(&safe), 0);
    let first = region();
    assert_eq!(first.validator(), None);
    first.want(1);
    first.take(0).await.unwrap();
    let tag = Validator::Tag("\"a\"".to_owned());
    first.begun(0, Some(tag.clone()), true);
    assert_eq!(region().validator(), Some(tag));
    safe.clear();
    assert_eq!(region().validator(), None, "all of it is fetched again");
}

/// Epochs begin when channels are there: handshakes are no part of what a setting gives.
#[tokio::test]
async fn a_lane_is_a_channel_once_it_has_moved_bytes() {
    let channels = |region: &Region| region.totals.channels.load(Ordering::Relaxed);
    let region = begun(ROOM).await;
    assert_eq!(channels(&region), 0);
    region.written(0, 1);
    assert_eq!(channels(&region), 1);
    region.left(0, None);
    assert_eq!(channels(&region), 0);

    let region = Region::of_parts(1 << 30, u64::MAX, ROUND_TRIP, true);
    assert_eq!(region.want(2), [0, 1]);
    for lane in 0..2 {
        let start = region.take(lane).await.unwrap().start;
        sent(&region, lane, start, CHUNK);
        assert_eq!(channels(&region), u32::try_from(lane).unwrap());
        sent(&region, lane, start + CHUNK, CHUNK);
    }
    assert_eq!(channels(&region), 2);
}
