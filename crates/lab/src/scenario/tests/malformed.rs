//! Errors in a scenario name the line, the field and the reason.

use super::super::parse;
use super::MINIMAL;

/// The minimal scenario with one text replaced, what is said, and where.
#[test]
fn malformed_scenarios_name_line_field_and_reason() {
    let table: &[(&str, &str, usize, &str, &str)] = &[
        // text, instead, line, field, part of the reason
        (
            "title = \"t\"",
            "title = \"t",
            1,
            "",
            "invalid basic string",
        ),
        ("title = \"t\"", "", 1, "title", "missing field"),
        (
            "title = \"t\"",
            "title = \" \"",
            1,
            "title",
            "must not be empty",
        ),
        (
            "title = \"t\"",
            "title = \"t\"\ncolour = 1",
            2,
            "colour",
            "unknown field",
        ),
        ("\"1 Gbit/s\"", "\"1 Gbps\"", 4, "path.rate", "Gbit/s"),
        ("\"1 Gbit/s\"", "1000", 4, "path.rate", "expected a string"),
        (
            "\"1 Gbit/s\"",
            "\"0 bit/s\"",
            4,
            "path.rate",
            "at least 1 bit/s",
        ),
        ("\"10 ms\"", "\"10\"", 5, "path.delay", "one of ns, us, ms"),
        ("delay =", "dealy =", 5, "path.dealy", "unknown field"),
        ("delay = \"10 ms\"", "", 3, "path.delay", "missing field"),
        ("[[method]]", "[path]", 7, "", "duplicate key"),
        (
            "\"10 ms\"",
            "\"10 ms\"\nmtu = 60",
            6,
            "path.mtu",
            "576 to 9000",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\nqueue = \"0 packets\"",
            6,
            "path.queue",
            "at least 1",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\nloss = \"200 %\"",
            6,
            "path.loss",
            "at most 100 %",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[sweep]\nchannels = [1, 0]",
            7,
            "sweep.channels[1]",
            "1 to 512",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[sweep]\nchannels = [1, -1]",
            7,
            "sweep.channels[1]",
            "-1",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[run]\nrepeats = 0",
            7,
            "run.repeats",
            "1 to 1000",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[run]\nmeasure = \"2 min\"\nramp = \"99 min\"",
            8,
            "run.ramp",
            "3600 s",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[quick]\nmethods = [\"x\"]",
            7,
            "quick.methods[0]",
            "no such method",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[figure]\npanels = [\"channels\"]",
            7,
            "figure.panels[0]",
            "axis already",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[[expect]]\nwhat = \"x\"",
            6,
            "expect[0]",
            "needs at_least",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[[load]]\nkind = \"rain\"",
            7,
            "load[0].kind",
            "unknown variant",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[[load]]\nkind = \"tcp\"\nflows = 0",
            8,
            "load[0].flows",
            "1 to 128",
        ),
        (
            "\"godwitd\"",
            "\"iperf3\"",
            11,
            "method[0].server",
            "iperf3 only",
        ),
        (
            "\"godwitd\"",
            "\"ftpd\"",
            11,
            "method[0].server",
            "unknown variant",
        ),
        (
            "name = \"godwit\"",
            "name = \"a b\"",
            8,
            "method[0].name",
            "letters, digits",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[sweep]\ncompute = [0, 2000]",
            7,
            "sweep.compute[1]",
            "at most 1024",
        ),
        (
            "\"1 Gbit/s\"",
            "\"unlimited\"",
            4,
            "path.rate",
            "leave it out",
        ),
        (
            "[path]\nrate = \"1 Gbit/s\"\ndelay = \"10 ms\"",
            "[sweep]\nloss = [\"1 %\"]",
            4,
            "sweep.loss",
            "needs a path",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[[change]]\nat = \"5 s\"\nloss = \"1 %\"",
            1,
            "run",
            "needs evolve",
        ),
        (
            "\"10 ms\"",
            "\"10 ms\"\n[run]\nevolve = \"5 s\"\n[[change]]\nat = \"5 s\"\nloss = \"1 %\"",
            7,
            "run.evolve",
            "before the last change",
        ),
        (
            "label = \"godwit\"",
            "label = \"godwit\"\ntuner = \"apt\"",
            1,
            "run",
            "needs evolve",
        ),
        (
            "label = \"godwit\"",
            "label = \"godwit\"\nepoch = \"3 s\"",
            10,
            "method[0].epoch",
            "needs tuner",
        ),
        (
            "label = \"godwit\"",
            "label = \"godwit\"\nchannels = 9\nparallelism = 8",
            11,
            "method[0].parallelism",
            "does not divide 9",
        ),
        (
            "label = \"godwit\"",
            "label = \"godwit\"\ntransfers = 17",
            10,
            "method[0].transfers",
            "1 to 16",
        ),
        (
            "client = \"godwit\"",
            "client = \"curl\"\ndirection = \"put\"",
            11,
            "method[0].direction",
            "but get",
        ),
        (
            "client = \"godwit\"",
            "client = \"lftp\"",
            10,
            "method[0].client",
            "needs work.file",
        ),
        (
            "[[method]]",
            "[work]\nfiles = \"1 GB\"\n[[method]]",
            8,
            "work.files",
            "needs sweep.files",
        ),
        (
            "[[method]]",
            "[sweep]\nfiles = [10]\n[[method]]",
            8,
            "sweep.files",
            "needs work.files",
        ),
        (
            "[[method]]",
            "[work]\nfiles = \"1 GB\"\n[sweep]\nfiles = [10, 0]\n[[method]]",
            10,
            "sweep.files[1]",
            "1 to 1000000",
        ),
        (
            "[[method]]",
            "[work]\nfile = \"1 GB\"\nfiles = \"1 GB\"\n[[method]]",
            9,
            "work.files",
            "excludes file",
        ),
        (
            "[[method]]",
            "[figure]\nx = \"file_size\"\n[[method]]",
            7,
            "figure",
            "needs work.files",
        ),
        (
            "client = \"godwit\"",
            "client = \"rclone\"",
            10,
            "method[0].client",
            "needs work.files",
        ),
        (
            "server = \"godwitd\"",
            "server = \"tar\"",
            11,
            "method[0].server",
            "tar speaks to tar only",
        ),
        (
            "client = \"godwit\"",
            "client = \"curl\"\narguments = [\"-v\"]",
            11,
            "method[0].arguments",
            "take more arguments",
        ),
    ];
    for (part, instead, line, field, reason) in table {
        let text = MINIMAL.replacen(part, instead, 1);
        assert_ne!(text, MINIMAL, "{part} is not there");
        let error = parse("a.toml", &text).expect_err(instead);
        let said = error.to_string();
        assert_eq!(error.line, Some(*line), "{instead}: {said}");
        assert_eq!(error.field, *field, "{instead}: {said}");
        assert!(error.reason.contains(reason), "{instead}: {said}");
        assert!(said.starts_with(&format!("a.toml:{line}: ")), "{said}");
    }
}
