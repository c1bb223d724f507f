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
fn what_is_refused() {
    for (text, want) in [
        ("http://h/", UrlError::Scheme("http".into())),
        ("ftp:///p", UrlError::Host(String::new())),
        ("ftp://u@/p", UrlError::Host(String::new())),
        ("ftp://a b/p", UrlError::Host("a b".into())),
        (
            "sshftp://-oProxyCommand/p",
            UrlError::Host("-oProxyCommand".into()),
        ),
        ("ftp://a\r\nb/p", UrlError::Host("a\\r\\nb".into())),
        ("ftp://[1.2.3.4]/", UrlError::Host("[1.2.3.4]".into())),
        ("ftp://[::1]x/", UrlError::Host("[::1]x".into())),
        ("ftp://[::1/", UrlError::Host("[::1".into())),
        ("ftp://h:0/", UrlError::Port("0".into())),
        ("ftp://h:65536/", UrlError::Port("65536".into())),
        ("ftp://h:+1/", UrlError::Port("+1".into())),
        ("ftp://::1/", UrlError::Host("::1".into())),
        ("ftp://h/%4", UrlError::Escape("/%4".into())),
        ("ftp://h/%zz", UrlError::Escape("/%zz".into())),
        ("ftp://u%0a@h/", UrlError::Escape("user name".into())),
        ("ftp://u:%00@h/", UrlError::Escape("password".into())),
        ("ftp://h/%00", UrlError::Path(BadPath::Octet(0))),
        ("ftp://h/%0Ax", UrlError::Path(BadPath::Octet(b'\n'))),
        ("file://h/p", UrlError::FileHost("h".into())),
        ("file://", UrlError::Path(BadPath::Empty)),
        ("", UrlError::Path(BadPath::Empty)),
    ] {
        assert_eq!(Location::parse(text.as_bytes()), Err(want), "{text}");
    }
}
