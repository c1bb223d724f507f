//! Circles among modules, and arrows that run upward between the rooms of a folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tree::Tree;

/// A circle: the modules that reach one another, and the shortest way around.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    pub(crate) members: Vec<usize>,
    /// Begins and ends with the same module.
    pub(crate) path: Vec<usize>,
}

/// Modules that import one another in a circle, see [`super::HELP`].
pub(crate) fn circles(tree: &Tree) -> Vec<Circle> {
    let all = (0..tree.modules.len()).collect();
    let mut circles = Vec::new();
    gather(tree, &all, &mut circles);
    circles.sort_by_key(|circle| circle.members.clone());
    circles
}

fn gather(tree: &Tree, among: &BTreeSet<usize>, circles: &mut Vec<Circle>) {
    let graph = graph(tree, among);
    for members in components(&graph) {
        // Inside its own folder a parent is free: it may use its children, and they it.
        let parent = common_folder(tree, &members);
        match parent.filter(|parent| members.contains(parent)) {
            Some(parent) => {
                let rest = members.into_iter().filter(|member| *member != parent);
                gather(tree, &rest.collect(), circles);
            }
            None => {
                let path = shortest(tree, &graph, &members, parent);
                let members = members.into_iter().collect();
                circles.push(Circle { members, path });
            }
        }
    }
}

/// The innermost module whose folder holds all members (or is one of them).
fn common_folder(tree: &Tree, members: &BTreeSet<usize>) -> Option<usize> {
    let ancestors = |mut module: usize| {
        let mut all = vec![module];
        while let Some(parent) = tree.modules[module].parent {
            all.push(parent);
            module = parent;
        }
        all
    };
    let first = ancestors(*members.first()?);
    let is_common = |folder: &usize| members.iter().all(|m| ancestors(*m).contains(folder));
    first.into_iter().find(is_common)
}

/// Which module names which.
type Graph = BTreeMap<usize, BTreeSet<usize>>;

fn graph(tree: &Tree, among: &BTreeSet<usize>) -> Graph {
    let mut graph: Graph = among
        .iter()
        .map(|module| (*module, BTreeSet::new()))
        .collect();
    for (from, to) in tree.arrows.keys() {
        if among.contains(from) && among.contains(to) {
            graph.entry(*from).or_default().insert(*to);
        }
    }
    graph
}

/// The strongly connected components that have more than one member.
fn components(graph: &Graph) -> Vec<BTreeSet<usize>> {
    let reached: BTreeMap<usize, BTreeSet<usize>> = graph
        .keys()
        .map(|from| (*from, reach(graph, *from)))
        .collect();
    let mut left: BTreeSet<usize> = graph.keys().copied().collect();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let both =
            |other: &usize| reached[&first].contains(other) && reached[other].contains(&first);
        let mut members: BTreeSet<usize> = left.iter().copied().filter(both).collect();
        left.retain(|module| !members.contains(module));
        if !members.is_empty() {
            members.insert(first);
            found.push(members);
        }
    }
    found
}

fn reach(graph: &Graph, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        open.extend(
            graph[&next]
                .iter()
                .copied()
                .filter(|to| reached.insert(*to)),
        );
    }
    reached
}

/// The shortest circle among members of a component that passes several rooms of the folder that
/// holds them all; of several such the first one. One inside a single room may be a free one.
fn shortest(
    tree: &Tree,
    graph: &Graph,
    members: &BTreeSet<usize>,
    folder: Option<usize>,
) -> Vec<usize> {
    let room = |module: usize| room_of(tree, module, folder);
    let around = members.iter().filter_map(|start| {
        // A module, and whether the way has been in another room than the first by then.
        let first = (*start, false);
        let mut before: BTreeMap<(usize, bool), (usize, bool)> = BTreeMap::new();
        let mut open = VecDeque::from([first]);
        while let Some(at) = open.pop_front() {
            for next in graph[&at.0].iter().filter(|next| members.contains(next)) {
                let next = (*next, at.1 || room(*next) != room(*start));
                if next.0 == *start && next.1 {
                    let mut path = vec![next.0, at.0];
                    let mut at = at;
                    while let Some(previous) = before.get(&at).filter(|_| at != first) {
                        path.push(previous.0);
                        at = *previous;
                    }
                    path.reverse();
                    return Some(path);
                }
                if next != first && !before.contains_key(&next) {
                    before.insert(next, at);
                    open.push_back(next);
                }
            }
        }
        None
    });
    around.min_by_key(Vec::len).unwrap_or_default()
}

/// The room of a folder in which a module lies, by the module whose room it is.
fn room_of(tree: &Tree, mut module: usize, folder: Option<usize>) -> Option<usize> {
    while tree.modules[module].parent != folder {
        module = tree.modules[module].parent?;
    }
    Some(module)
}

/// Arrows that run upward, see [`super::HELP`].
pub(crate) fn upward(tree: &Tree) -> Vec<(usize, usize)> {
    let mut rooms: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (module, it) in tree.modules.iter().enumerate() {
        rooms.entry(it.parent).or_default().push(module);
    }
    let mut upward = Vec::new();
    for (folder, rooms) in rooms {
        let place_of = |module: usize| {
            let found = room_of(tree, module, folder)?;
            rooms.iter().position(|room| *room == found)
        };
        let mut weights = vec![vec![0_usize; rooms.len()]; rooms.len()];
        let mut between = Vec::new();
        for (from, to) in tree.arrows.keys() {
            if let (Some(a), Some(b)) = (place_of(*from), place_of(*to))
                && a != b
            {
                weights[a][b] += 1;
                between.push((a, b, *from, *to));
            }
        }
        let order = order(&weights);
        let against = between
            .into_iter()
            .filter(|(a, b, ..)| order[*a] > order[*b]);
        upward.extend(against.map(|(_, _, from, to)| (from, to)));
    }
    upward.sort_unstable();
    upward
}

/// The place of each room, the top one first, so that few arrows run upward: one room after the
/// other moves to its best place until none gains anything.
fn order(weights: &[Vec<usize>]) -> Vec<usize> {
    let count = weights.len();
    let mut order: Vec<usize> = (0..count).collect();
    let drawn = |room: usize| {
        let arrows: usize = weights[room].iter().sum();
        let back: usize = weights.iter().map(|row| row[room]).sum();
        i64::try_from(back).unwrap_or(0) - i64::try_from(arrows).unwrap_or(0)
    };
    order.sort_by_key(|room| drawn(*room));
    loop {
        let mut gained = false;
        for (room, row) in weights.iter().enumerate() {
            let at = order.iter().position(|it| *it == room).unwrap_or(0);
            order.remove(at);
            // Arrows upward with the room at each place, less those with it on top.
            let mut best = (0_i64, 0);
            let mut here = 0_i64;
            let mut now = 0_i64;
            for place in 0..count {
                if place == at {
                    now = here;
                }
                if here < best.0 {
                    best = (here, place);
                }
                if let Some(other) = order.get(place) {
                    let (up, down) = (row[*other], weights[*other][room]);
                    here += i64::try_from(up).unwrap_or(0) - i64::try_from(down).unwrap_or(0);
                }
            }
            let place = if best.0 < now { best.1 } else { at };
            gained |= place != at;
            order.insert(place, room);
        }
        if !gained {
            break;
        }
    }
    let mut places = vec![0; count];
    for (place, room) in order.into_iter().enumerate() {
        places[room] = place;
    }
    places
}
