//! A day of users, drawn from a seed.

use godwit_tune::random::Random;

use super::scenario::{ResearchStudy, Sizes};
use crate::scenario::whole;

/// Exponent by which users differ in how often they move something (Zipf).
const USERS_ZIPF: f64 = 0.8;
/// Shape of the gaps between transfers of a user (Pareto): most are short, some are hours.
const GAPS_PARETO: f64 = 1.3;
/// Sites that a user moves data from or to, beside the own.
const PARTNERS: usize = 3;

/// A transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DrawnTransfer {
    pub(super) user: usize,
    pub(super) source: usize,
    pub(super) destination: usize,
    pub(super) at_s: f64,
    pub(super) bytes: u64,
    pub(super) file_bytes: u64,
}

/// Transfers in the order of their beginnings.
pub(super) fn draw(study: &ResearchStudy, seed: u64) -> Vec<DrawnTransfer> {
    let mut random = Random::new(seed);
    let users = study.users as usize;
    let weights: Vec<f64> = (1..=study.users)
        .map(|rank| f64::from(rank).powf(-USERS_ZIPF))
        .collect();
    let mut counts = vec![0_u32; users];
    for _ in 0..study.transfers {
        counts[choose(&weights, &mut random)] += 1;
    }
    let sites: Vec<f64> = study.site.iter().map(|site| site.weight).collect();
    let span = 3600.0 * f64::from(study.hours);
    let mut all = Vec::new();
    for (user, count) in counts.into_iter().enumerate() {
        let home = choose(&sites, &mut random);
        let partners: Vec<usize> = (0..PARTNERS)
            .map(|_| other(home, &sites, &mut random))
            .collect();
        let gaps: Vec<f64> = (0..count)
            .map(|_| (1.0 - random.unit()).powf(-1.0 / GAPS_PARETO) - 1.0)
            .collect();
        // From a random moment of the day on, around its end.
        let all_gaps = gaps.iter().sum::<f64>().max(1e-9);
        let mut at = random.unit();
        for gap in gaps {
            at = (at + gap / all_gaps) % 1.0;
            let partner = partners[below(PARTNERS, &mut random)];
            let (source, destination) = match random.unit() < 0.5 {
                true => (home, partner),
                false => (partner, home),
            };
            let bytes = size(study.size, &mut random);
            all.push(DrawnTransfer {
                user,
                source,
                destination,
                at_s: span * at,
                bytes,
                file_bytes: size(study.file, &mut random).min(bytes),
            });
        }
    }
    all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    all
}

fn size(sizes: Sizes, random: &mut Random) -> u64 {
    #[allow(clippy::cast_precision_loss, reason = "sizes are rough")]
    let (median, most) = (sizes.median.0 as f64, sizes.max.0 as f64);
    whole((median * (sizes.sigma * random.normal()).exp()).clamp(1.0, most))
}

fn below(count: usize, random: &mut Random) -> usize {
    let drawn = random.next_u64() % (count as u64).max(1);
    usize::try_from(drawn).unwrap_or(0)
}

fn choose(weights: &[f64], random: &mut Random) -> usize {
    let mut left = random.unit() * weights.iter().sum::<f64>();
    for (at, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return at;
        }
    }
    weights.len() - 1
}

fn other(than: usize, sites: &[f64], random: &mut Random) -> usize {
    let mut weights = sites.to_vec();
    weights[than] = 0.0;
    let chosen = choose(&weights, random);
    // Rounding could end at the last one.
    if chosen == than {
        (than + 1) % sites.len()
    } else {
        chosen
    }
}
