//! Static routes: Dijkstra by delay, then by number of links, then by the order of the links.

use crate::path::PathConfig;

/// The links of a flow, by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Of its packets.
    pub forward: Vec<u16>,
    /// Of their acknowledgements.
    pub back: Vec<u16>,
}

/// The links from `start` to `end`, if any lead there. Networks are small, so the next node is
/// looked for among all.
pub(super) fn shortest(
    nodes: usize,
    links: &[(usize, usize, PathConfig)],
    start: usize,
    end: usize,
) -> Option<Vec<u16>> {
    let mut best: Vec<Option<(u64, usize)>> = vec![None; nodes];
    let mut arrived_by = vec![usize::MAX; nodes];
    let mut done = vec![false; nodes];
    best[start] = Some((0, 0));
    while let Some((cost, node)) = (0..nodes)
        .filter(|node| !done[*node])
        .filter_map(|node| best[node].map(|cost| (cost, node)))
        .min()
    {
        done[node] = true;
        for (index, (from, to, path)) in links.iter().enumerate() {
            let next = (cost.0.saturating_add(path.delay_ns), cost.1 + 1);
            if *from == node && best[*to].is_none_or(|known| next < known) {
                best[*to] = Some(next);
                arrived_by[*to] = index;
            }
        }
    }
    best[end]?;
    let mut route = Vec::new();
    let mut node = end;
    while node != start {
        let link = arrived_by[node];
        route.push(u16::try_from(link).expect("fewer than LINKS_MAX"));
        node = links[link].0;
    }
    route.reverse();
    Some(route)
}
