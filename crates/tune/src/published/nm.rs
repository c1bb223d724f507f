//! `nm`: Nelder-Mead on whole numbers (Direct, Algorithm 3).

use std::collections::BTreeSet;

use super::{Move, Walk, cd::along, watch::Watch};
use crate::{
    Observation,
    format::{Change, Rate},
    space::{Coordinates, Space},
};

/// Reflection, expansion, contraction, shrinkage.
const R: f64 = 1.0;
const E: f64 = 2.0;
const C: f64 = 0.5;
const S: f64 = 0.5;

/// Parameters, with the paper's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Edge of the first simplex, at least 1. *Our reading*: 8, as compass search.
    pub lambda: f64,
    /// Change that opens a new search, percent. The paper uses 5.
    pub eps: f64,
}

/// A point and f there.
type Vertex = (Coordinates, f64);

#[derive(Debug)]
enum Phase {
    /// Vertices without a value, the last of which is under way.
    Fill(Vec<Coordinates>),
    /// xr is under way.
    Reflect { c: Vec<f64>, xr: Coordinates },
    /// xe is under way.
    Expand { xr: Vertex, xe: Coordinates },
    /// xc is under way.
    Contract { xc: Coordinates },
    /// Found: hold and watch.
    Hold(Watch),
}

pub(crate) struct Nm {
    space: Space,
    params: Params,
    /// Best first once it is whole.
    simplex: Vec<Vertex>,
    /// Simplices of this search, to notice circles. *Our reading*: rounding can make them.
    visited: BTreeSet<Vec<Coordinates>>,
    phase: Phase,
}

impl Nm {
    pub(crate) fn new(space: Space, x0: Coordinates, params: Params) -> Self {
        let mut nm = Self {
            space,
            params,
            simplex: Vec::new(),
            visited: BTreeSet::new(),
            phase: Phase::Fill(Vec::new()),
        };
        nm.phase = Phase::Fill(nm.corners(x0));
        nm
    }

    /// The first simplex: x0 last, since it is measured first. Where a bound leaves nothing of an
    /// edge it goes the other way.
    fn corners(&self, x0: Coordinates) -> Vec<Coordinates> {
        let edge = |axis| {
            let there = along(&self.space, &x0, axis, self.params.lambda);
            if there == x0 {
                along(&self.space, &x0, axis, -self.params.lambda)
            } else {
                there
            }
        };
        let mut corners: Vec<Coordinates> = (0..self.space.len()).rev().map(edge).collect();
        corners.push(x0);
        corners
    }

    /// A new round: order, see whether this is the end, reflect.
    fn round(&mut self, why: &str) -> Move {
        self.simplex.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut points: Vec<Coordinates> = self.simplex.iter().map(|v| v.0.clone()).collect();
        points.sort();
        let one_point = points.windows(2).all(|pair| pair[0] == pair[1]);
        if one_point || !self.visited.insert(points) {
            self.visited.clear();
            self.phase = Phase::Hold(Watch::new(self.params.eps));
            let (best, f) = &self.simplex[0];
            return Move::to(best.clone(), format!("best of the search, {}", Rate(*f)));
        }
        let c = centroid(&self.simplex[..self.simplex.len() - 1]);
        let xr = self.space.bound(&beyond(&c, &self.worst().0, -R));
        self.phase = Phase::Reflect { c, xr: xr.clone() };
        Move::to(xr, format!("{why}, reflect"))
    }

    fn worst(&self) -> &Vertex {
        &self.simplex[self.simplex.len() - 1]
    }

    /// Puts `vertex` in the place of the worst.
    fn take(&mut self, vertex: Vertex) -> Move {
        let why = format!("took {}", Rate(vertex.1));
        let last = self.simplex.len() - 1;
        self.simplex[last] = vertex;
        self.round(&why)
    }

    fn reflected(&mut self, c: &[f64], xr: Coordinates, f: f64) -> Move {
        let best = self.simplex[0].1;
        let worst = self.worst().1;
        if f > best {
            let there: Vec<f64> = xr.iter().map(|x| f64::from(*x)).collect();
            let xe = self.space.bound(&beyond_f(c, &there, E));
            self.phase = Phase::Expand {
                xr: (xr, f),
                xe: xe.clone(),
            };
            return Move::to(xe, format!("{} is best, expand", Rate(f)));
        }
        if f > worst {
            return self.take((xr, f));
        }
        // Towards the better of xr and xm, which is xm: f(xr) <= f(xm) here. On equal terms the
        // older one.
        let xc = self.space.bound(&beyond(c, &self.worst().0, C));
        self.phase = Phase::Contract { xc: xc.clone() };
        Move::to(
            xc,
            format!("{} not better than the worst, contract", Rate(f)),
        )
    }

    fn contracted(&mut self, xc: Coordinates, f: f64) -> Move {
        if f >= self.worst().1 {
            return self.take((xc, f));
        }
        let best = self.simplex[0].clone();
        let x0: Vec<f64> = best.0.iter().map(|x| f64::from(*x)).collect();
        let shrunk = self.simplex[1..]
            .iter()
            .map(|(x, _)| self.space.bound(&beyond(&x0, x, S)))
            .collect();
        self.simplex = vec![best];
        self.fill(shrunk, "shrink")
    }

    fn fill(&mut self, todo: Vec<Coordinates>, why: &str) -> Move {
        let Some(next) = todo.last().cloned() else {
            return self.round(why);
        };
        self.phase = Phase::Fill(todo);
        Move::to(next, why)
    }
}

impl Walk for Nm {
    fn name(&self) -> &'static str {
        "nm"
    }

    fn first(&mut self) -> Move {
        match std::mem::replace(&mut self.phase, Phase::Fill(Vec::new())) {
            Phase::Fill(todo) => self.fill(todo, "to begin with"),
            _ => unreachable!("first is asked once, before any step"),
        }
    }

    fn step(&mut self, seen: &Observation) -> Move {
        let f = seen.goodput_bps();
        match std::mem::replace(&mut self.phase, Phase::Fill(Vec::new())) {
            Phase::Fill(mut todo) => {
                self.simplex.extend(todo.pop().map(|x| (x, f)));
                self.fill(todo, "a vertex")
            }
            Phase::Reflect { c, xr } => self.reflected(&c, xr, f),
            Phase::Expand { xr, xe } => self.take(if f > xr.1 { (xe, f) } else { xr }),
            Phase::Contract { xc } => self.contracted(xc, f),
            Phase::Hold(mut watch) => {
                let best = self.simplex[0].0.clone();
                match watch.changed(f) {
                    None => {
                        self.phase = Phase::Hold(watch);
                        Move::to(best, "found")
                    }
                    Some(delta) => {
                        let mut todo = self.corners(best.clone());
                        todo.pop();
                        self.simplex = vec![(best, f)];
                        self.fill(todo, &format!("goodput {}, search again", Change(delta)))
                    }
                }
            }
        }
    }
}

fn centroid(vertices: &[Vertex]) -> Vec<f64> {
    let count = f64::from(u32::try_from(vertices.len()).expect("a simplex has at most three"));
    (0..vertices[0].0.len())
        .map(|axis| vertices.iter().map(|v| f64::from(v.0[axis])).sum::<f64>() / count)
        .collect()
}

/// c + factor (x - c)
fn beyond(c: &[f64], x: &[u32], factor: f64) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    beyond_f(c, &x, factor)
}

fn beyond_f(c: &[f64], x: &[f64], factor: f64) -> Vec<f64> {
    c.iter().zip(x).map(|(c, x)| c + factor * (x - c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::tests::{line, plane, trace, trace_points};

    const PAPER: Params = Params {
        lambda: 8.0,
        eps: 5.0,
    };

    #[test]
    fn one_parameter_by_hand() {
        // 2 and 10; reflect to 18, expand to 26; reflect to 42 (best is 26, worst 10) and contract
        // ...
        let visited = trace(Nm::new(line(128), vec![2], PAPER), 30, |n| {
            100.0 - (f64::from(n) - 21.0).abs()
        });
        assert_eq!(visited[..4], [2, 10, 18, 26]);
        assert!((19..=23).contains(&visited[29]), "{visited:?}");
    }

    #[test]
    fn two_parameters_come_near_the_top() {
        let visited = trace_points(Nm::new(plane(512), vec![2, 8], PAPER), 60, |x| {
            100.0 - (f64::from(x[0]) - 12.0).abs() - (f64::from(x[1]) - 12.0).abs()
        });
        let end = &visited[59];
        assert!(
            end[0].abs_diff(12) + end[1].abs_diff(12) <= 4,
            "{visited:?}"
        );
    }

    #[test]
    fn searches_again_when_goodput_changes() {
        let mut epoch = 0;
        let visited = trace(Nm::new(line(128), vec![2], PAPER), 60, |n| {
            epoch += 1;
            100.0 - (f64::from(n) - if epoch < 30 { 21.0 } else { 60.0 }).abs()
        });
        assert!((56..=64).contains(&visited[59]), "{visited:?}");
    }
}
