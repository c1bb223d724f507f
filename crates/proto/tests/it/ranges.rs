//! Sets of ranges against a bitmap, and what 111 and stripe layouts make of them.

use godwit_proto::{
    ByteRange, RangeSet,
    marker::{parse_range_marker, range_marker},
    mode_e::layout::StripeLayout,
};
use proptest::{collection::vec, prelude::*};

const BYTES: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(ByteRange),
    Remove(ByteRange),
}

fn range() -> impl Strategy<Value = ByteRange> {
    (0..=BYTES, 0..=BYTES).prop_map(|(a, b)| ByteRange::new(a.min(b), a.max(b)).unwrap())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => range().prop_map(Step::Insert),
        1 => range().prop_map(Step::Remove),
    ];
    vec(step, 0..20)
}

/// The set and a bitmap, led through the same steps.
fn run(steps: &[Step]) -> (RangeSet, u128) {
    let (mut set, mut bits) = (RangeSet::new(), 0);
    for step in steps {
        match *step {
            Step::Insert(r) => {
                set.insert(r);
                bits |= mask(r);
            }
            Step::Remove(r) => {
                set.remove(r);
                bits &= !mask(r);
            }
        }
    }
    (set, bits)
}

fn mask(r: ByteRange) -> u128 {
    (r.start..r.end).fold(0, |m, i| m | 1 << i)
}

fn bits_of(ranges: impl IntoIterator<Item = ByteRange>) -> u128 {
    ranges.into_iter().fold(0, |m, r| {
        assert_eq!(m & mask(r), 0, "ranges overlap");
        m | mask(r)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn set_equals_bitmap(steps in steps(), probe in range(), other in steps()) {
        let (set, bits) = run(&steps);
        prop_assert_eq!(bits_of(set.iter()), bits);
        prop_assert_eq!(set.covered(), u64::from(bits.count_ones()));
        prop_assert_eq!(set.is_empty(), bits == 0);
        prop_assert_eq!(set.count(), set.iter().count());
        let all: Vec<ByteRange> = set.iter().collect();
        for pair in all.windows(2) {
            prop_assert!(pair[0].end < pair[1].start, "in order and not touching: {:?}", set);
        }
        prop_assert_eq!(set.contains(probe), bits & mask(probe) == mask(probe));
        prop_assert_eq!(bits_of(set.gaps(probe)), mask(probe) & !bits);

        let (other, other_bits) = run(&other);
        let mut union = set.clone();
        union.union_with(&other);
        prop_assert_eq!(bits_of(union.iter()), bits | other_bits);
    }

    /// Readers merge ranges one byte apart: no marker may hold such, and none may promise what is
    /// not there.
    #[test]
    fn range_markers_promise_only_what_is_there(
        steps in steps(),
        eof in proptest::option::of(0..=BYTES),
    ) {
        let (set, bits) = run(&steps);
        let Some(reply) = range_marker(&set, eof) else {
            return Ok(());
        };
        let said = parse_range_marker(&reply).unwrap();
        prop_assert!(!said.is_empty());
        prop_assert_eq!(bits_of(said.iter()) & !bits, 0, "{} of {:?}", reply, set);
        let all: Vec<ByteRange> = said.iter().collect();
        for pair in all.windows(2) {
            prop_assert!(pair[1].start - pair[0].end > 1, "{}", reply);
        }
        // As GCT's client reads it: ends included when ranges are merged.
        let as_gct = all.iter().fold(0, |m, r| m | mask(*r) | (1 << r.end));
        let between = |p: &[ByteRange]| mask(ByteRange { start: p[0].end, end: p[1].start });
        let gaps_for_gct = all.windows(2).all(|p| as_gct & between(p) != between(p));
        prop_assert!(gaps_for_gct, "{}", reply);
        let unsaid = bits.count_ones() - bits_of(said.iter()).count_ones();
        prop_assert!(unsaid as usize <= 2 * set.count());
    }

    /// A whole file of any length is promised whole.
    #[test]
    fn a_whole_file_is_said(length in 1..=u64::MAX) {
        let set = RangeSet::from_iter(ByteRange::new(0, length));
        let said = parse_range_marker(&range_marker(&set, Some(length)).unwrap());
        prop_assert_eq!(said, Some(set));
    }

    #[test]
    fn every_byte_has_one_stripe(
        range in range(),
        total in 0..=BYTES,
        stripes in 1_usize..6,
        block_bytes in 1_u64..20,
    ) {
        for layout in [StripeLayout::Partitioned, StripeLayout::Blocked { block_bytes }] {
            let mut bits = 0;
            for stripe in 0..stripes {
                let pieces: Vec<ByteRange> = layout.pieces(range, total, stripe, stripes).collect();
                prop_assert!(pieces.windows(2).all(|p| p[0].end <= p[1].start));
                prop_assert!(pieces.iter().all(|p| !p.is_empty()));
                let own = bits_of(pieces);
                prop_assert_eq!(bits & own, 0);
                bits |= own;
            }
            prop_assert_eq!(bits, mask(range), "{:?}", layout);
        }
    }

    #[test]
    fn bounded_sets_hold_nothing_that_was_not_added(
        ranges in vec(range(), 0..40),
        most in 0_usize..6,
    ) {
        let (mut bounded, mut bits) = (RangeSet::new(), 0);
        for range in ranges {
            let mut free = bounded.clone();
            free.insert(range);
            let fits = bounded.insert_within(range, most);
            prop_assert_eq!(fits, free.count() <= most);
            if fits {
                bits |= mask(range);
            }
            prop_assert_eq!(bits_of(bounded.iter()), bits);
            prop_assert!(bounded.count() <= most);
        }
    }

    /// The stripe of a byte does not depend on how the file is asked for.
    #[test]
    fn stripes_do_not_depend_on_the_range(
        a in range(),
        b in range(),
        stripes in 1_usize..6,
        block_bytes in 1_u64..20,
    ) {
        for layout in [StripeLayout::Partitioned, StripeLayout::Blocked { block_bytes }] {
            for stripe in 0..stripes {
                let own = |r| bits_of(layout.pieces(r, BYTES, stripe, stripes));
                prop_assert_eq!(own(a) & mask(b), own(b) & mask(a));
            }
        }
    }
}
