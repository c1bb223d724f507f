//! What a run asks about its destinations where files that exist may stay.

use std::{fs, sync::Arc};

use godwit_client::{
    CancellationToken,
    cli::{Environment, parse},
    job,
    report::events::{Event, Observer},
    spec::{ExistingFiles, Request},
};

use crate::{
    fake::{Fake, Quirks},
    harness::text,
};

struct Silent;

impl Observer for Silent {
    fn on_event(&self, _: &Event) {}
}

/// Puts so many files where there is none, and says how often the server was asked about one.
async fn looks_for(files: usize) -> usize {
    let server = Fake::start(Quirks::default());
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    fs::create_dir(&from).unwrap();
    let names = (0..files).map(|number| format!("f{number}"));
    let names: Vec<String> = names.collect();
    for name in &names {
        fs::write(from.join(name), name).unwrap();
    }
    let list = here.path().join("list");
    fs::write(&list, names.join("\n")).unwrap();
    let to = server.url("/");
    let words = [
        "godwit",
        "cp",
        "--files-from",
        text(&list),
        text(&from),
        &to,
    ];
    let invocation = parse(&words.map(Into::into), &Environment::default());
    let invocation = invocation.map_err(|exit| exit.text).unwrap();
    let Request::Copy(mut spec) = invocation.request else {
        panic!("no copy");
    };
    spec.existing = ExistingFiles::Refuse;
    let stop = CancellationToken::default();
    let ran = job::run(*spec, invocation.connections, Arc::new(Silent), stop).await;
    assert_eq!(ran.unwrap().exit, 0);
    for name in &names {
        assert_eq!(server.get(&format!("/{name}")).unwrap(), name.as_bytes());
    }
    server.heard("MLST")
}

#[tokio::test]
async fn names_that_are_free_are_looked_for_once_and_together() {
    let few = looks_for(5).await;
    assert_eq!(looks_for(45).await, few + 40);
}
