//! Weighted max-min shares with a limit for each flow (Bertsekas and Gallager, "Data Networks",
//! §6.5.2): the level of all flows rises together; one whose limit is reached stops there, and
//! when a link is full, all of its flows stop.

/// What a flow asks for.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    pub(super) links: &'a [usize],
    /// Above 0.
    pub(super) weight: f64,
    /// Most that it takes.
    pub(super) limit: f64,
}

/// What a flow gets, and the link that keeps it from more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Got {
    pub(super) rate: f64,
    /// `None`: its own limit.
    pub(super) link: Option<usize>,
}

/// Shares of links with these capacities.
pub(super) fn shares(capacities: &[f64], flows: &[Asked<'_>]) -> Vec<Got> {
    let mut left = capacities.to_vec();
    let mut weights = vec![0.0; capacities.len()];
    let mut open = vec![0_usize; capacities.len()];
    for flow in flows {
        for link in flow.links {
            weights[*link] += flow.weight;
            open[*link] += 1;
        }
    }
    let mut used: Vec<usize> = (0..capacities.len()).filter(|at| open[*at] > 0).collect();
    let mut got: Vec<Option<Got>> = vec![None; flows.len()];
    let mut by_limit: Vec<usize> = (0..flows.len()).collect();
    let level_of = |at: usize| flows[at].limit / flows[at].weight;
    by_limit.sort_by(|a, b| level_of(*a).total_cmp(&level_of(*b)));
    let mut next = by_limit.into_iter().peekable();
    loop {
        used.retain(|link| open[*link] > 0);
        let full = used
            .iter()
            .map(|link| (left[*link].max(0.0) / weights[*link], *link))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let level = full.map_or(f64::INFINITY, |(level, _)| level);
        let mut stopped = Vec::new();
        while let Some(at) = next.next_if(|at| got[*at].is_some() || level_of(*at) <= level) {
            if got[at].is_none() {
                let rate = flows[at].limit;
                got[at] = Some(Got { rate, link: None });
                stopped.push(at);
            }
        }
        if stopped.is_empty() {
            let Some((level, link)) = full else { break };
            for (at, flow) in flows.iter().enumerate() {
                if got[at].is_none() && flow.links.contains(&link) {
                    let rate = level * flow.weight;
                    let link = Some(link);
                    got[at] = Some(Got { rate, link });
                    stopped.push(at);
                }
            }
        }
        for at in stopped {
            let rate = got[at].map_or(0.0, |got| got.rate);
            for link in flows[at].links {
                left[*link] -= rate;
                weights[*link] -= flows[at].weight;
                open[*link] -= 1;
            }
        }
    }
    let nothing = Got {
        rate: 0.0,
        link: None,
    };
    got.into_iter().map(|got| got.unwrap_or(nothing)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(links: &[usize], weight: f64, limit: f64) -> Asked<'_> {
        Asked {
            links,
            weight,
            limit,
        }
    }

    const NO_LIMIT: f64 = f64::INFINITY;

    #[test]
    fn a_long_flow_has_the_share_of_its_fullest_link() {
        let flows = [
            asked(&[0, 1], 1.0, NO_LIMIT),
            asked(&[0], 1.0, NO_LIMIT),
            asked(&[1], 1.0, NO_LIMIT),
        ];
        let got = shares(&[10.0, 4.0], &flows);
        let rates: Vec<f64> = got.iter().map(|got| got.rate).collect();
        assert_eq!(rates, [2.0, 8.0, 2.0]);
        assert_eq!(got[0].link, Some(1));
    }

    #[test]
    fn what_a_limit_leaves_goes_to_others_by_weight() {
        let flows = [
            asked(&[0], 1.0, 1.0),
            asked(&[0], 1.0, NO_LIMIT),
            asked(&[0], 2.0, NO_LIMIT),
        ];
        let got = shares(&[10.0], &flows);
        let rates: Vec<f64> = got.iter().map(|got| got.rate).collect();
        assert_eq!(rates, [1.0, 3.0, 6.0]);
        assert_eq!(got[0].link, None);
    }

    #[test]
    fn no_link_carries_more_than_it_can_and_none_is_idle_that_is_wanted() {
        let mut random = godwit_tune::random::Random::new(5);
        for _ in 0..200 {
            let capacities: Vec<f64> = (0..8).map(|_| 1.0 + 9.0 * random.unit()).collect();
            let routes: Vec<Vec<usize>> = (0..20)
                .map(|_| (0..8).filter(|_| random.unit() < 0.3).collect())
                .collect();
            let flows: Vec<Asked<'_>> = routes
                .iter()
                .map(|links| asked(links, 0.1 + random.unit(), 3.0 * random.unit()))
                .collect();
            let got = shares(&capacities, &flows);
            let rates: Vec<f64> = got.iter().map(|got| got.rate).collect();
            for (link, capacity) in capacities.iter().enumerate() {
                let on = |at: &usize| flows[*at].links.contains(&link);
                let sum: f64 = (0..20).filter(on).map(|at| rates[at]).sum();
                assert!(sum <= capacity * (1.0 + 1e-9), "{sum} of {capacity}");
            }
            for (flow, got) in flows.iter().zip(&got) {
                match got.link {
                    None => assert_eq!(got.rate, flow.limit),
                    Some(link) => {
                        let on = |at: &usize| flows[*at].links.contains(&link);
                        let sum: f64 = (0..20).filter(on).map(|at| rates[at]).sum();
                        assert!(sum >= capacities[link] * (1.0 - 1e-9));
                    }
                }
            }
        }
    }
}
