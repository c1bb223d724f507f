//! Addresses of data channels: `h1,h2,h3,h4,p1,p2`, `|1|ip|port|`, and the replies that carry them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::text::decimal;

/// `h1,h2,h3,h4,p1,p2` (RFC 959 §5.3.2). `None` for anything else, numbers above 255 included.
pub fn parse_comma(text: &str) -> Option<SocketAddr> {
    let mut numbers = [0_u8; 6];
    let mut parts = text.split(',');
    for n in &mut numbers {
        *n = decimal(parts.next()?.trim_matches(' '))?;
    }
    if parts.next().is_some() {
        return None;
    }
    let [a, b, c, d, high, low] = numbers;
    let port = u16::from_be_bytes([high, low]);
    Some((Ipv4Addr::new(a, b, c, d), port).into())
}

/// `|1|ip|port|` or `|2|ip|port|` (RFC 2428 §2), any delimiter 33..=126.
pub fn parse_extended(text: &str) -> Option<SocketAddr> {
    match split_extended(text)? {
        ("1", host, port) => Some((host.parse::<Ipv4Addr>().ok()?, port).into()),
        ("2", host, port) => Some((host.parse::<Ipv6Addr>().ok()?, port).into()),
        _ => None,
    }
}

/// Either form: SPOR takes both, and so do the lines of a SPAS reply.
pub fn parse_any(text: &str) -> Option<SocketAddr> {
    parse_comma(text).or_else(|| parse_extended(text.trim_matches(' ')))
}

/// Protocol number, host (perhaps empty) and port of an extended address.
pub(crate) fn split_extended(text: &str) -> Option<(&str, &str, u16)> {
    let delimiter = text.chars().next().filter(char::is_ascii_graphic)?;
    let mut parts = text[1..].split(delimiter);
    let (protocol, host, port) = (parts.next()?, parts.next()?, parts.next()?);
    // Behind the last delimiter: nothing.
    match (parts.next(), parts.next()) {
        (Some(""), None) => Some((protocol, host, decimal(port)?)),
        _ => None,
    }
}

/// `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address.
pub fn format_comma(addr: SocketAddr) -> Option<String> {
    let SocketAddr::V4(addr) = addr else {
        return None;
    };
    let [a, b, c, d] = addr.ip().octets();
    let [high, low] = addr.port().to_be_bytes();
    Some(format!("{a},{b},{c},{d},{high},{low}"))
}

/// `|1|ip|port|` or `|2|ip|port|`.
pub fn format_extended(addr: SocketAddr) -> String {
    let protocol = if addr.is_ipv4() { 1 } else { 2 };
    format!("|{protocol}|{}|{}|", addr.ip(), addr.port())
}

/// The address in the text of a 227 or 127 reply: the six numbers after `(`, or the first digits.
pub fn parse_227(text: &str) -> Option<SocketAddr> {
    let from = |at: usize| {
        let rest = &text[at..];
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == ',' || c == ' '))
            .unwrap_or(rest.len());
        parse_comma(rest[..end].trim_matches(' ').trim_end_matches(','))
    };
    text.find('(')
        .and_then(|i| from(i + 1))
        .or_else(|| from(text.find(|c: char| c.is_ascii_digit())?))
}

/// The address of a 229 or 129 reply to EPSV: `(|||port|)` takes the host from `peer`.
pub fn parse_229(text: &str, peer: IpAddr) -> Option<SocketAddr> {
    let inside = &text[text.find('(')? + 1..];
    let inside = inside[..inside.find(')')?].trim_matches(' ');
    match split_extended(inside)? {
        (_, "", port) => Some((peer, port).into()),
        _ => parse_extended(inside),
    }
}

/// The addresses of a 229 or 129 reply to SPAS: its body lines, at most [`ADDRESSES_MAX`]. `None`
/// where a line is none or there is no line.
pub fn parse_striped(reply: &crate::reply::Reply) -> Option<Vec<SocketAddr>> {
    let body = reply.body();
    if body.is_empty() || body.len() > ADDRESSES_MAX {
        return None;
    }
    body.iter()
        .map(|line| parse_any(std::str::from_utf8(line).ok()?))
        .collect()
}

/// Stripes that SPOR or a SPAS reply may name. Chosen arbitrarily; real clusters have tens.
pub const ADDRESSES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    #[test]
    fn comma_form() {
        assert_eq!(
            parse_comma("127,0,0,1,142,177"),
            Some(addr("127.0.0.1:36529"))
        );
        assert_eq!(
            format_comma(addr("127.0.0.1:36529")).as_deref(),
            Some("127,0,0,1,142,177")
        );
        assert_eq!(format_comma(addr("[::1]:1")), None);
        for bad in [
            "",
            "1,2,3,4,5",
            "1,2,3,4,5,256",
            "1,2,3,4,5,6,7",
            "1,2,3,4,5,",
            "-1,2,3,4,5,6",
            "a,2,3,4,5,6",
        ] {
            assert_eq!(parse_comma(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn extended_form() {
        for (text, want) in [
            ("|1|132.235.1.2|6275|", "132.235.1.2:6275"), // RFC 2428 §2
            (
                "|2|1080::8:800:200C:417A|5282|",
                "[1080::8:800:200C:417A]:5282",
            ),
            ("!1!1.2.3.4!80!", "1.2.3.4:80"),
        ] {
            assert_eq!(parse_extended(text), Some(addr(want)), "{text}");
        }
        for bad in [
            "",
            "|",
            "|||",
            "|1|::1|5|",
            "|2|1.2.3.4|5|",
            "|3|x|5|",
            "|1|1.2.3.4|65536|",
            "|1|1.2.3.4|5",
            "|1|1.2.3.4|5|x",
            "é1é1.2.3.4é5é",
        ] {
            assert_eq!(parse_extended(bad), None, "{bad:?}");
        }
        assert_eq!(format_extended(addr("[::1]:5")), "|2|::1|5|");
    }

    #[test]
    fn passive_replies() {
        let want = Some(addr("10.0.0.9:513"));
        for text in [
            "Entering Passive Mode (10,0,0,9,2,1)",
            "Entering Passive Mode (10,0,0,9,2,1).",
            "PORT (10,0,0,9,2,1)",
            "PORT=10,0,0,9,2,1",
            "Entering Passive Mode. 10,0,0,9,2,1",
            "Passive (now) 10, 0, 0, 9, 2, 1",
        ] {
            assert_eq!(parse_227(text), want, "{text}");
        }
        assert_eq!(parse_227("Passive delayed."), None);

        let peer: IpAddr = "::1".parse().unwrap();
        assert_eq!(
            parse_229("Entering Extended Passive Mode (|||5282|)", peer),
            Some(addr("[::1]:5282"))
        );
        assert_eq!(parse_229("x (|1|10.0.0.9|513|)", peer), want);
        assert_eq!(parse_229("Entering Striped Passive Mode.", peer), None);
        assert_eq!(parse_229("(|||x|)", peer), None);
    }

    #[test]
    fn striped_reply() {
        use crate::reply::{BodyStyle, Reply, ReplyCode};
        let reply = |lines: &[&str]| {
            let body = lines.iter().map(|l| l.as_bytes().to_vec());
            Reply::with_body(
                ReplyCode::of(229),
                BodyStyle::Blank,
                "Entering Striped Passive Mode.",
                body,
                "End",
            )
        };
        assert_eq!(
            parse_striped(&reply(&["10,0,0,9,2,1", "|2|::1|5|"])),
            Some(vec![addr("10.0.0.9:513"), addr("[::1]:5")])
        );
        assert_eq!(parse_striped(&reply(&["10,0,0,9,2,1", "x"])), None);
        assert_eq!(parse_striped(&reply(&[])), None);
    }
}
