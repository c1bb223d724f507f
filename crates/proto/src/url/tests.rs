use super::*;

fn remote(text: &str) -> RemoteUrl {
    match Location::parse(text.as_bytes()) {
        Ok(Location::Remote(url)) => url,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_tilde_begins_at_home_and_an_encoded_one_is_a_name() {
    for (text, path, home, shown) in [
        ("ftp://h/~", "~", Some("~"), "ftp://h/~"),
        ("ftp://h/~/", "~/", Some("~"), "ftp://h/~/"),
        ("ftp://h/~//a%20b/", "~/a b/", Some("~"), "ftp://h/~/a%20b/"),
        ("ftp://h/~jo/x", "~jo/x", Some("~jo"), "ftp://h/~jo/x"),
        ("ftp://h/%7E/x", "/~/x", None, "ftp://h/%7E/x"),
        ("ftp://h//~/x", "/~/x", None, "ftp://h/%7E/x"),
        ("ftp://h/a/~/x", "/a/~/x", None, "ftp://h/a/~/x"),
    ] {
        let url = remote(text);
        assert_eq!(url.path.as_bytes(), path.as_bytes(), "{text}");
        assert_eq!(url.home(), home.map(str::as_bytes), "{text}");
        assert_eq!(url.to_string(), shown, "{text}");
    }
}

#[test]
fn remote_forms() {
    for (text, scheme, user, host, port, path) in [
        ("gsiftp://h/p", Scheme::Gsiftp, None, "h", 2811, "/p"),
        ("ftp://h", Scheme::Ftp, None, "h", 21, "/"),
        ("ftpes://h", Scheme::Ftpes, None, "h", 21, "/"),
        (
            "sshftp://u@h:/d/",
            Scheme::Sshftp,
            Some("u"),
            "h",
            22,
            "/d/",
        ),
        (
            "GSIFTP://h:5000//a///b",
            Scheme::Gsiftp,
            None,
            "h",
            5000,
            "/a/b",
        ),
        (
            "ftp://u%40x:p%3Aw@h/~/x",
            Scheme::Ftp,
            Some("u@x"),
            "h",
            21,
            "~/x",
        ),
        (
            "gsiftp://[2001:db8::1]:9/a%20b",
            Scheme::Gsiftp,
            None,
            "2001:db8::1",
            9,
            "/a b",
        ),
        (
            "gsiftp://[::1]/%2Fp?q#f",
            Scheme::Gsiftp,
            None,
            "::1",
            2811,
            "/p?q#f",
        ),
    ] {
        let url = remote(text);
        assert_eq!(url.scheme, scheme, "{text}");
        assert_eq!(url.user.as_deref(), user, "{text}");
        assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
        assert_eq!(url.path.as_bytes(), path.as_bytes(), "{text}");
    }
    assert!(remote("ftp://h/d/").names_directory());
    assert!(!remote("ftp://h/d").names_directory());
    for directory in ["/", "d/", ".", "..", "d/.", "d/..", "./", "d//"] {
        assert!(names_directory(directory.as_bytes()), "{directory:?}");
    }
    for file in ["", "d", "d..", "d.", "d/...", "d/..f", ".d", "d/out.."] {
        assert!(!names_directory(file.as_bytes()), "{file:?}");
    }
}

#[test]
fn written_as_rfc_3986_wants_it() {
    for (text, want) in [
        (
            "gsiftp://u%40x:secret@h:2811/a%20b/%25%C3%A9%FF",
            "gsiftp://u%40x@h/a%20b/%25%C3%A9%FF",
        ),
        ("ftp://[::1]:2121/x;type=i", "ftp://[::1]:2121/x;type=i"),
        ("ftp://h/a?b#c", "ftp://h/a%3Fb%23c"),
        ("ftp://h", "ftp://h/"),
    ] {
        assert_eq!(remote(text).to_string(), want);
    }
    let url = remote("ftp://u:secret@h/");
    assert!(!format!("{url:?}").contains("secret"));
    assert_eq!(url.password, Some(Password::new("secret")));
}

#[test]
fn local_forms() {
    for (text, want) in [
        ("file:///a%20b", "/a b"),
        ("file://LOCALHOST/x", "/x"),
        ("a%20b", "a%20b"),
        ("./x://y", "./x://y"),
        ("/p", "/p"),
        ("C:x", "C:x"),
    ] {
        assert_eq!(
            Location::parse(text.as_bytes()),
            Ok(Location::Local(want.into())),
            "{text}"
        );
    }
    assert_eq!(Location::parse(b"-"), Ok(Location::Standard));
    assert_eq!(
        Location::Local(b"/a\xff".to_vec()).to_string(),
        "file:///a%FF"
    );
    assert_eq!(Location::Local(b"-".to_vec()).to_string(), "./-");
    assert_eq!(
        Location::Local(b"ftp://x".to_vec()).to_string(),
        "./ftp://x"
    );
}

#[test]
fn a_key_keeps_its_slashes_and_dots() {
    for (text, path, shown) in [
        ("s3://b", "/", "s3://b/"),
        ("s3://b//a", "//a", "s3://b//a"),
        ("s3://p@b/a//../b/", "/a//../b/", "s3://p@b/a//../b/"),
        ("s3://b/~/a?b#c%25", "/~/a?b#c%", "s3://b/%7E/a%3Fb%23c%25"),
    ] {
        let url = remote(text);
        assert_eq!(url.path.as_bytes(), path.as_bytes(), "{text}");
        assert_eq!((url.to_string(), url.home()), (shown.to_owned(), None));
    }
}

#[test]
fn bad_urls_are_refused() {
    for (text, want) in [
        ("gopher://h/", UrlError::Scheme("gopher".into())),
        ("https://h/a?b", UrlError::Query),
        ("s3://b:9000/k", UrlError::Bucket),
        ("s3://a:p@b/k", UrlError::Bucket),
        ("s3:///k", UrlError::Host),
        ("s3://b/%0Ak", UrlError::Path(BadPath::Byte(b'\n'))),
        ("ftp:///p", UrlError::Host),
        ("ftp://u@/p", UrlError::Host),
        ("ftp://a b/p", UrlError::Host),
        ("sshftp://-oProxyCommand/p", UrlError::Host),
        ("ftp://a\r\nb/p", UrlError::Host),
        ("ftp://[1.2.3.4]/", UrlError::Host),
        ("ftp://[::1]x/", UrlError::Host),
        ("ftp://[::1/", UrlError::Host),
        ("ftp://h:0/", UrlError::Port),
        ("ftp://h:65536/", UrlError::Port),
        ("ftp://h:+1/", UrlError::Port),
        ("ftp://::1/", UrlError::Host),
        ("ftp://h/%4", UrlError::Escape("/%4".into())),
        ("ftp://h/%zz", UrlError::Escape("/%zz".into())),
        ("ftp://u%0a@h/", UrlError::Escape("user name".into())),
        ("ftp://u:%00@h/", UrlError::Escape("password".into())),
        ("ftp://h/%00", UrlError::Path(BadPath::Byte(0))),
        ("ftp://h/%0Ax", UrlError::Path(BadPath::Byte(b'\n'))),
        ("file://h/p", UrlError::FileHost),
        ("file://", UrlError::Path(BadPath::Empty)),
        ("", UrlError::Path(BadPath::Empty)),
    ] {
        assert_eq!(Location::parse(text.as_bytes()), Err(want), "{text}");
    }
}

/// Secrets of the tests below hold this.
const SECRET: &str = "12";

const MEANT_FOR_A_PASSWORD: &[&str] = &[
    "ftp://jo:12/34@h/",
    "ftp://jo:12/34@h/f@g",
    "ftp://jo:a12/34@h/",
    "ftp://jo:/12@h/",
    "ftp://jo:@12/@h/",
    "ftp://jo@mail:12/34@h/",
    "ftp://jo:p@12/34@h/",
    "ftp://grid/jo:12@h/",
    "ftp://[::1]:12/34@h/",
    "ftpes://jo:12\\/x@h",
    "ftp://jo:a12",
    "ftp://jo:a12/f",
    "ftp://j o:12@",
    "ftp://jo:12@h:x12/",
    "ftp:/jo:12@h/",
    "FTPES:jo:12@h/",
    "file://jo:12@h/",
    "gopher://jo:12@h/",
];

#[test]
fn possible_passwords_are_refused_and_not_shown() {
    for text in MEANT_FOR_A_PASSWORD {
        let error = Location::parse(text.as_bytes()).unwrap_err().to_string();
        let shown = format!("{}: {error}", masked(text));
        assert!(!shown.contains(SECRET), "{text}: {shown}");
    }
    for text in ["ftp://jo:12/34@h/", "ftp://h:2121/a@b", "ftp://h/10:30@x"] {
        let refused = Location::parse(text.as_bytes());
        assert_eq!(refused, Err(UrlError::Ambiguous), "{text}");
    }
    let Ok(Location::Remote(url)) = Location::parse(b"gsiftp://h:2811/a@b") else {
        panic!("a port that servers have by default is a port");
    };
    assert_eq!((&url.host[..], url.path.as_bytes()), ("h", &b"/a@b"[..]));
}

#[test]
fn all_that_may_be_a_password_is_masked() {
    for (text, want) in [
        ("ftp://jo:12/34@h/f", "ftp://jo:***@h/f"),
        ("--x=ftp://jo:12@h/f", "--x=ftp://jo:***@h/f"),
        ("ftp://jo:1@2:3@h/f", "ftp://jo:***@h/f"),
        ("ftp://jo@[::1]:21/f", "ftp://jo@[::1]:21/f"),
        ("ftp://[::1]:21/f", "ftp://[::1]:21/f"),
        ("ftp://[::1]/f@g", "ftp://[::1]/f@g"),
        ("ftp://h:21/f", "ftp://h:21/f"),
        ("gsiftp://h:2811/a@b", "gsiftp://h:2811/a@b"),
        ("gsiftp://jo:2811@h/a@b", "gsiftp://jo:***@b"),
        ("ftp://h:99999/f", "ftp://h:***"),
        ("ftp://h:/f", "ftp://h:/f"),
        ("ftp://h/a:b", "ftp://h/a:b"),
        ("ftp:jo:12@h/", "ftp:jo:***@h/"),
        ("a:b@c", "a:b@c"),
        ("é://ü:ö@ä", "é://ü:***@ä"),
        ("", ""),
    ] {
        assert_eq!(masked(text), want, "{text}");
    }
}

#[test]
fn an_at_sign_of_a_path_is_written_so_that_it_ends_no_login() {
    let url = remote("ftp://h:2121/a%40b");
    assert_eq!(url.path.as_bytes(), b"/a@b");
    assert_eq!(url.to_string(), "ftp://h:2121/a%40b");
    assert_eq!(remote("ftp://h/a@b"), remote("ftp://h/a%40b"));
}
