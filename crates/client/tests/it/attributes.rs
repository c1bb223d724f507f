//! Times and permissions that copies have of their sources, and servers that refuse some.

use std::fs;

use crate::{
    fake::{Fake, Quirks},
    harness::{run, text},
};

#[test]
fn a_time_that_is_refused_is_that_of_one_file() {
    const FEATURES: &[&str] = &["MFMT", "SIZE", "MLST type*;size*;modify*;"];
    for (refusal, asked, words) in [
        ("550 /d/f0: not yours", 3, "did not set its time"),
        ("501 bad time", 3, "did not set its time"),
        ("504 not here", 1, "refuses to set times"),
    ] {
        let fake = Fake::start(Quirks {
            features: Some(FEATURES),
            once: vec![("MFMT", refusal)],
            ..Quirks::default()
        });
        let here = tempfile::tempdir().unwrap();
        for name in ["f0", "f1", "f2"] {
            fs::write(here.path().join(name), name).unwrap();
        }
        let top = format!("{}/", text(here.path()));
        let ran = run(&["sync", "-c", "1", &top, &fake.url("/d/")]).expect(0, &[words]);
        assert_eq!(fake.heard("MFMT"), asked, "{refusal}: {}", ran.err);
        assert_eq!(fake.names().len(), 3);
        if asked == 3 {
            assert_eq!(ran.err.matches(words).count(), 1, "{}", ran.err);
            assert!(!ran.err.contains(".godwit-"), "{}", ran.err);
        }
    }
}
