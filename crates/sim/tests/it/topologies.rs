use godwit_sim::{
    MS,
    network::Topology,
    path::{PathConfig, Queue, QueueLimit},
};

use crate::support::link;

fn delay(ms: u64) -> PathConfig {
    PathConfig::new(1_000_000, ms * MS)
}

#[test]
fn routes_take_the_least_delay_and_then_the_fewest_links() {
    let topology = Topology::new(&[
        link("a", "c", delay(30)),
        link("a", "b", delay(10)),
        link("b", "c", delay(10)),
        link("c", "a", delay(20)),
        link("c", "b", delay(10)),
        link("b", "a", delay(10)),
    ])
    .unwrap();
    let route = topology.route("a", "c").unwrap();
    assert_eq!(
        (route.forward.clone(), route.back.clone()),
        (vec![1, 2], vec![3])
    );
    assert_eq!(topology.round_trip_ns(&route), 40 * MS);
}

#[test]
fn impossible_topologies_name_field_and_reason() {
    let wrong_queue = PathConfig {
        queue: Queue {
            limit: QueueLimit::Packets(0),
            ..Queue::default()
        },
        ..delay(1)
    };
    for (links, expected) in [
        (vec![], "link: there is none"),
        (
            vec![link("a", "a", delay(1))],
            "link[0].to: leads from a to itself",
        ),
        (vec![link("", "a", delay(1))], "link[0].from: needs a name"),
        (
            vec![link("a", "b", delay(1)), link("a", "b", delay(2))],
            "link[1].to: a second link from a to b",
        ),
        (
            vec![link("a", "b", delay(1)), link("b", "a", wrong_queue)],
            "link[1].path.queue.limit: must be at least 1",
        ),
    ] {
        assert_eq!(Topology::new(&links).unwrap_err().to_string(), expected);
    }
}

#[test]
fn flows_need_links_there_and_back() {
    let topology = Topology::new(&[link("a", "b", delay(1)), link("c", "a", delay(1))]).unwrap();
    for (from, to, expected) in [
        ("a", "b", "to: no links lead from b to a"),
        ("b", "c", "to: no links lead from b to c"),
        ("x", "b", "from: no link names x"),
        ("a", "a", "to: is a itself"),
    ] {
        assert_eq!(topology.route(from, to).unwrap_err().to_string(), expected);
    }
}
