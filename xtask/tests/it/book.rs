//! The commands of the book, run as they stand.

use crate::{stage, support::tree};

fn play(page: &str) {
    if stage::is_possible() {
        stage::play(&tree().join(page), None);
    }
}

#[test]
fn the_five_minute_start_works() {
    play("docs/start.md");
}

#[test]
fn the_first_page_works() {
    play("README.md");
}

#[test]
fn operating_works() {
    play("docs/operating.md");
}

#[test]
fn striping_works() {
    play("docs/striping.md");
}

#[test]
fn tuning_works() {
    play("docs/tuning.md");
}

#[test]
fn https_works() {
    play("docs/https.md");
}

#[test]
fn changing_from_webdav_tools_works() {
    play("docs/from-webdav.md");
}

#[test]
fn identities_work() {
    play("docs/security.md");
}

#[test]
fn troubles_are_as_they_are_told() {
    play("docs/troubleshooting.md");
}

#[test]
fn a_backup_of_the_transfer_service_works() {
    play("docs/service-operating.md");
}

#[test]
fn the_transfer_service_works() {
    play("docs/service.md");
}
