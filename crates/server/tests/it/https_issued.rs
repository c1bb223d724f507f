//! Tokens that the server issues to its users, for other servers.

use std::{fs, thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    https::{Answer, KIM, SAM, ask, bearer},
    https_copies::{DONE, active, copy, ending, fails, url},
    tls::{Site, Wishes},
};

fn site() -> Site {
    let wishes = Wishes {
        https: true,
        anonymous: true,
        ..Wishes::default()
    };
    let site = Site::with(wishes, |settings| settings.issue_tokens = true);
    site.server.write("f", b"0123456789");
    site.server.write("other", b"secret");
    site.server.write("sam/g", b"of sam");
    site
}

fn request(site: &Site, login: &str, path: &str, wish: &Value) -> Answer {
    let head = format!("{login}Content-Type: application/macaroon-request\r\n");
    ask(site, "POST", path, &head, wish.to_string().as_bytes())
}

/// The `Authorization` of a token.
#[track_caller]
fn token(site: &Site, login: &str, path: &str, wish: &Value) -> String {
    let answer = request(site, login, path, wish).is(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    let token = answer["macaroon"].as_str().unwrap();
    format!("Authorization: Bearer {token}\r\n")
}

fn activity(words: &str) -> Value {
    json!({ "caveats": [format!("activity:{words}")], "validity": "PT10M" })
}

#[test]
fn a_token_gives_what_was_asked_for_at_its_path_and_nothing_else() {
    let site = site();
    let status =
        |method: &str, path: &str, head: &str| ask(&site, method, path, head, b"").status();
    let reading = token(&site, KIM, "/f", &activity("DOWNLOAD,LIST"));
    assert_eq!(
        ask(&site, "GET", "/f", &reading, b"").is(200).text(),
        "0123456789"
    );
    assert_eq!(status("GET", "/other", &reading), 403);
    assert_eq!(status("PUT", "/f", &reading), 403);
    assert_eq!(status("DELETE", "/f", &reading), 403);
    let writing = token(&site, KIM, "/new", &activity("UPLOAD"));
    assert_eq!(status("PUT", "/new", &writing), 201);
    assert_eq!(status("GET", "/new", &writing), 403);
    assert_eq!(status("DELETE", "/new", &writing), 403);
    assert_eq!(status("PUT", "/f", &writing), 403);
    let all = token(&site, KIM, "/new", &json!({}));
    assert_eq!(status("GET", "/new", &all), 200);
    assert_eq!(status("DELETE", "/new", &all), 204);
}

#[test]
fn nobody_gets_more_from_a_token_than_the_login_has() {
    let site = site();
    let refused =
        |login: &str, path: &str, wish: &Value| request(&site, login, path, wish).status();
    // It reads, below its home.
    token(&site, SAM, "/sam/g", &activity("DOWNLOAD"));
    assert_eq!(refused(SAM, "/sam/g", &activity("UPLOAD,DELETE")), 403);
    assert_eq!(refused(SAM, "/f", &activity("DOWNLOAD")), 403);
    let of_sam = token(&site, SAM, "/sam/g", &json!({}));
    assert_eq!(ask(&site, "DELETE", "/sam/g", &of_sam, b"").status(), 403);
    // No token gets another one, which would outlive it; nor does a request without a login.
    assert_eq!(refused(&of_sam, "/sam/g", &activity("DOWNLOAD")), 403);
    let foreign = bearer(&site, "storage.read:/");
    assert_eq!(refused(&foreign, "/f", &activity("DOWNLOAD")), 403);
    let anonymous = refused("", "/f", &activity("DOWNLOAD"));
    assert!(matches!(anonymous, 401 | 403), "{anonymous}");
}

#[test]
fn a_token_ends_and_no_other_server_takes_it() {
    let (site, other) = (site(), site());
    let soon = json!({"caveats": ["activity:DOWNLOAD"], "validity": "PT1S"});
    let ended = token(&site, KIM, "/f", &soon);
    let lasting = token(&site, KIM, "/f", &activity("DOWNLOAD"));
    assert_eq!(ask(&other, "GET", "/f", &lasting, b"").status(), 401);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(ask(&site, "GET", "/f", &ended, b"").status(), 401);
    assert_eq!(ask(&site, "GET", "/f", &lasting, b"").status(), 200);
}

/// Of the file that logins are of.
#[test]
fn a_token_ends_with_its_account_and_with_what_that_might_do() {
    let site = site();
    let file = site.folder.path().join("passwords");
    let lines = fs::read_to_string(&file).unwrap();
    let sam = lines.lines().find(|line| line.starts_with("sam:")).unwrap();
    let others = lines.replace(sam, "");
    // A connection logs in once.
    let status = |head: &str| {
        let head = format!("{head}Connection: close\r\n");
        ask(&site, "GET", "/sam/g", &head, b"").status()
    };
    let reading = token(&site, SAM, "/sam/g", &activity("DOWNLOAD"));
    assert_eq!(status(&reading), 200);
    fs::write(&file, &others).unwrap();
    assert_eq!(status(&reading), 401);
    // Whoever has the name later is another.
    fs::write(
        &file,
        format!("{others}{}\n", sam.replacen(":ro", ":rw", 1)),
    )
    .unwrap();
    assert_eq!(status(&reading), 401);
    fs::write(&file, &lines).unwrap();
    assert_eq!(status(&reading), 200);
}

#[test]
fn requests_that_are_not_understood_get_no_token() {
    let site = site();
    for wish in [
        json!({"caveats": ["path:/d"]}),
        json!({"caveats": ["activity:FLY"]}),
        json!({"validity": "for ever"}),
        json!([1]),
    ] {
        assert_eq!(request(&site, KIM, "/f", &wish).status(), 400, "{wish}");
    }
    assert_eq!(request(&site, KIM, "/f", &activity("LIST")).status(), 403);
    let large = json!({"caveats": ["x".repeat(5000)]});
    assert_eq!(request(&site, KIM, "/f", &large).status(), 413);
    assert_eq!(ask(&site, "POST", "/f", KIM, b"x").status(), 405);
    let off = Site::new(Wishes {
        https: true,
        ..Wishes::default()
    });
    assert_eq!(
        request(&off, KIM, "/f", &activity("DOWNLOAD")).status(),
        405
    );
}

#[test]
fn another_server_fetches_and_stores_with_a_token() {
    let passive = site();
    let active = active(&passive);
    let shown = |token: &str| token.replacen("Authorization", "TransferHeaderAuthorization", 1);
    let pull = |token: &str, path: &str| {
        let source = url(&passive, path);
        copy(
            &active,
            "/g",
            &format!("Source: {source}\r\n{}", shown(token)),
        )
    };
    let reading = token(&passive, KIM, "/f", &activity("DOWNLOAD"));
    assert_eq!(ending(pull(&reading, "/f")), DONE);
    assert_eq!(fs::read(active.server.path("g")).unwrap(), b"0123456789");
    fails(pull(&reading, "/other"), "status code 403");
    let writing = token(&passive, KIM, "/h", &activity("UPLOAD"));
    let target = url(&passive, "/h");
    let push = format!("Destination: {target}\r\n{}", shown(&writing));
    // It may not read what it has stored, so nothing but the answer to PUT says that it is there.
    assert_eq!(ending(copy(&active, "/g", &push)), DONE);
    assert_eq!(fs::read(passive.server.path("h")).unwrap(), b"0123456789");
}
